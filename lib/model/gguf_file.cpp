#include "lib/model/gguf_file.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t idx = 0) {
  T value{};
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

bool is_float(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

// Element `idx` of a value or array; nullopt for a type that is no number.
std::optional<double> number_at(GgufValueType type, std::span<const std::byte> bytes,
                                std::size_t idx) {
  switch (type) {
    case GgufValueType::kU8:
      return load<std::uint8_t>(bytes, idx);
    case GgufValueType::kI8:
      return load<std::int8_t>(bytes, idx);
    case GgufValueType::kU16:
      return load<std::uint16_t>(bytes, idx);
    case GgufValueType::kI16:
      return load<std::int16_t>(bytes, idx);
    case GgufValueType::kU32:
      return load<std::uint32_t>(bytes, idx);
    case GgufValueType::kI32:
      return load<std::int32_t>(bytes, idx);
    case GgufValueType::kF32:
      return static_cast<double>(load<float>(bytes, idx));
    case GgufValueType::kU64:
      return static_cast<double>(load<std::uint64_t>(bytes, idx));
    case GgufValueType::kI64:
      return static_cast<double>(load<std::int64_t>(bytes, idx));
    case GgufValueType::kF64:
      return load<double>(bytes, idx);
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : map_(path),
      path_(path),
      bytes_(map_.bytes()),
      header_(parse_gguf_header(bytes_, path_.string())) {
  make_index();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::filesystem::path name)
    : path_(std::move(name)), bytes_(bytes), header_(parse_gguf_header(bytes_, path_.string())) {
  make_index();
}

void GgufFile::make_index() {
  for (std::size_t idx = 0; idx < header_.tensors.size(); ++idx) {
    index_.emplace(header_.tensors[idx].name, idx);
  }
}

void GgufFile::fail(std::string_view key, const std::string& what) const {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}: {}", path().string(), printable(key), what));
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = header_.values.find(std::string(key));
  return found == header_.values.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type == GgufValueType::kU64) {
    const auto number = load<std::uint64_t>(found->bytes);
    if (number > static_cast<std::uint64_t>(INT64_MAX)) {
      fail(key, fmt::format("{} is more than any size", number));
    }
    return static_cast<std::int64_t>(number);
  }
  if (found->type == GgufValueType::kI64) return load<std::int64_t>(found->bytes);
  const auto number = number_at(found->type, found->bytes, 0);
  if (!number || is_float(found->type)) fail(key, "expected an integer");
  return static_cast<std::int64_t>(*number);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const auto number = number_at(found->type, found->bytes, 0);
  if (!number) fail(key, "expected a number");
  return number;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kBool) fail(key, "expected a truth value");
  return load<std::uint8_t>(found->bytes) != 0;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kString) fail(key, "expected a string");
  return std::string(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufValueType::kArray || found->element_type != GgufValueType::kString) {
    fail(key, "expected a list of strings");
  }
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(found->count));
  std::span<const std::byte> rest = found->bytes;  // the header reader has checked the lengths
  for (std::uint64_t i = 0; i < found->count; ++i) {
    const auto length = static_cast<std::size_t>(load<std::uint64_t>(rest));
    rest = rest.subspan(sizeof(std::uint64_t));
    out.emplace_back(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  return out;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  std::vector<double> out;
  if (found->type == GgufValueType::kArray) {
    for (std::size_t i = 0; i < found->count; ++i) {
      const auto number = number_at(found->element_type, found->bytes, i);
      if (!number) fail(key, "expected a list of numbers");
      out.push_back(*number);
    }
    return out;
  }
  const auto number = number_at(found->type, found->bytes, 0);
  if (!number) fail(key, "expected a number or a list of numbers");
  out.push_back(*number);
  return out;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  return bytes_.subspan(static_cast<std::size_t>(header_.data_begin + tensor.offset),
                        static_cast<std::size_t>(tensor.size_bytes));
}

}  // namespace moe::model
