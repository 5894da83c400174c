#include "lib/model/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

template <typename Element>
Element load(std::span<const std::byte> bytes, std::size_t index) {
  Element value;
  std::memcpy(&value, bytes.data() + index * sizeof(Element), sizeof(Element));
  return value;
}

template <typename Element>
void append_i32(const TensorRef& tensor, std::vector<std::int32_t>& out) {
  for (std::size_t index = 0; index < out.size(); ++index) {
    const auto value = load<Element>(tensor.bytes, index);
    if (!std::in_range<std::int32_t>(value)) {
      throw Error(ErrorCode::kInput, fmt::format("tensor \"{}\": value {} does not fit 32 bits",
                                                 printable(tensor.name), value));
    }
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): numbers of 8 bits, no text
    out[index] = static_cast<std::int32_t>(value);
  }
}

[[noreturn]] void wrong_dtype(const TensorRef& tensor, std::string_view expected) {
  throw Error(ErrorCode::kInput,
              fmt::format("tensor \"{}\": dtype {}, expected {}", printable(tensor.name),
                          dtype_name(tensor.dtype), expected));
}

std::size_t element_count(const TensorRef& tensor) {
  const auto count = tensor.shape.num_elements();
  MOE_CHECK(count.has_value());
  return static_cast<std::size_t>(*count);
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) MOE_CHECK(push_back(size));
}

bool Shape::push_back(std::int64_t size) {
  if (rank_ == kMaxRank) return false;
  sizes_[rank_++] = size;
  return true;
}

std::optional<std::int64_t> Shape::num_elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes()) {
    const auto next = checked_mul(product, size);
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(sizes(), ", "));
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

std::optional<std::int64_t> tensor_bytes(Dtype dtype, const Shape& shape) {
  const auto count = shape.num_elements();
  if (!count) return std::nullopt;
  const auto bits = checked_mul(*count, dtype_bits(dtype));
  if (!bits || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : map_(path),
      header_(std::make_unique<SafetensorsHeader>(parse_safetensors(map_.bytes(), path.string()))) {
}

TensorRef SafetensorsFile::ref(const TensorEntry& entry) const {
  return {entry.name, entry.dtype, entry.shape,
          map_.bytes().subspan(static_cast<std::size_t>(header_->data_begin + entry.begin),
                               static_cast<std::size_t>(entry.end - entry.begin))};
}

std::optional<TensorRef> SafetensorsFile::find(std::string_view name) const {
  const auto found = header_->index.find(name);
  if (!found) return std::nullopt;
  return ref(header_->tensors[*found]);
}

TensorRef SafetensorsFile::at(std::string_view name) const {
  const auto found = find(name);
  if (!found) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: tensor \"{}\" is not there", path().string(), printable(name)));
  }
  return *found;
}

std::optional<std::string_view> SafetensorsFile::metadata(std::string_view key) const {
  for (const auto& [name, value] : header_->metadata) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::vector<float> to_f32(const TensorRef& tensor) {
  std::vector<float> out(element_count(tensor));
  for (std::size_t index = 0; index < out.size(); ++index) {
    switch (tensor.dtype) {
      case Dtype::kF32:
        out[index] = load<float>(tensor.bytes, index);
        break;
      case Dtype::kF64:
        out[index] = static_cast<float>(load<double>(tensor.bytes, index));
        break;
      case Dtype::kBf16:
        out[index] = bf16_to_f32(load<std::uint16_t>(tensor.bytes, index));
        break;
      case Dtype::kF16:
        out[index] = f16_to_f32(load<std::uint16_t>(tensor.bytes, index));
        break;
      default:
        wrong_dtype(tensor, "F32, F64, F16 or BF16");
    }
  }
  return out;
}

std::vector<std::int32_t> to_i32(const TensorRef& tensor) {
  std::vector<std::int32_t> out(element_count(tensor));
  switch (tensor.dtype) {
    case Dtype::kI32:
      append_i32<std::int32_t>(tensor, out);
      break;
    case Dtype::kU32:
      append_i32<std::uint32_t>(tensor, out);
      break;
    case Dtype::kI64:
      append_i32<std::int64_t>(tensor, out);
      break;
    case Dtype::kU64:
      append_i32<std::uint64_t>(tensor, out);
      break;
    case Dtype::kU16:
      append_i32<std::uint16_t>(tensor, out);
      break;
    case Dtype::kI16:
      append_i32<std::int16_t>(tensor, out);
      break;
    case Dtype::kU8:
      append_i32<std::uint8_t>(tensor, out);
      break;
    case Dtype::kI8:
      append_i32<std::int8_t>(tensor, out);
      break;
    default:
      wrong_dtype(tensor, "an integer type");
  }
  return out;
}

}  // namespace moe::model
