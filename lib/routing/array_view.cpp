#include "lib/routing/array_view.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::routing {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

struct TypeNames {
  ElementType type;
  std::int64_t bytes;
  const char* name;
  std::string_view safetensors;
  std::string_view numpy;
};

constexpr std::array<TypeNames, 13> kTypes = {{
    {ElementType::kBool, 1, "bool", "BOOL", "|b1"},
    {ElementType::kU8, 1, "uint8", "U8", "|u1"},
    {ElementType::kI8, 1, "int8", "I8", "|i1"},
    {ElementType::kU16, 2, "uint16", "U16", "<u2"},
    {ElementType::kI16, 2, "int16", "I16", "<i2"},
    {ElementType::kU32, 4, "uint32", "U32", "<u4"},
    {ElementType::kI32, 4, "int32", "I32", "<i4"},
    {ElementType::kU64, 8, "uint64", "U64", "<u8"},
    {ElementType::kI64, 8, "int64", "I64", "<i8"},
    {ElementType::kF16, 2, "float16", "F16", "<f2"},
    {ElementType::kBf16, 2, "bfloat16", "BF16", ""},
    {ElementType::kF32, 4, "float32", "F32", "<f4"},
    {ElementType::kF64, 8, "float64", "F64", "<f8"},
}};

const TypeNames& names_of(ElementType type) {
  return kTypes[static_cast<std::size_t>(type)];
}

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

struct Half {
  std::uint16_t bits;
  explicit operator double() const { return half_to_double(bits); }
};
struct Bfloat {
  std::uint16_t bits;
  explicit operator double() const {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
};

template <typename Element, typename Out>
void copy_elements(const std::byte* from, std::int64_t stride, std::span<Out> out) {
  const auto step = static_cast<std::size_t>(stride) * sizeof(Element);
  for (Out& value : out) {
    Element element;
    std::memcpy(&element, from, sizeof(Element));
    value = static_cast<Out>(element);  // NOLINT(bugprone-signed-char-misuse): numbers, no text
    from += step;
  }
}

template <typename Out>
void copy_integers(const ArrayView& row, std::int64_t begin, std::span<Out> out) {
  MOE_DCHECK(row.rank() == 1);
  const std::int64_t stride = row.strides[0];
  const std::byte* from = row.bytes.data() + begin * stride * element_bytes(row.type);
  switch (row.type) {
    case ElementType::kBool:
    case ElementType::kU8:
      return copy_elements<std::uint8_t>(from, stride, out);
    case ElementType::kI8:
      return copy_elements<std::int8_t>(from, stride, out);
    case ElementType::kU16:
      return copy_elements<std::uint16_t>(from, stride, out);
    case ElementType::kI16:
      return copy_elements<std::int16_t>(from, stride, out);
    case ElementType::kU32:
      return copy_elements<std::uint32_t>(from, stride, out);
    case ElementType::kI32:
      return copy_elements<std::int32_t>(from, stride, out);
    case ElementType::kU64:
      return copy_elements<std::uint64_t>(from, stride, out);
    case ElementType::kI64:
      return copy_elements<std::int64_t>(from, stride, out);
    case ElementType::kF16:
    case ElementType::kBf16:
    case ElementType::kF32:
    case ElementType::kF64:
      break;
  }
  MOE_CHECK(false);
}

}  // namespace

std::int64_t element_bytes(ElementType type) {
  return names_of(type).bytes;
}

const char* element_name(ElementType type) {
  return names_of(type).name;
}

bool is_integer(ElementType type) {
  return type < ElementType::kF16;
}

std::optional<ElementType> element_of_safetensors(std::string_view dtype) {
  for (const TypeNames& names : kTypes) {
    if (names.safetensors == dtype) return names.type;
  }
  return std::nullopt;
}

std::optional<ElementType> element_of_numpy(std::string_view descr) {
  for (const TypeNames& names : kTypes) {
    if (!names.numpy.empty() && names.numpy == descr) return names.type;
  }
  return std::nullopt;
}

std::int64_t ArrayView::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;  // makers have checked the product
  return count;
}

ArrayView ArrayView::at(std::int64_t index) const {
  MOE_DCHECK(rank() >= 1 && index >= 0 && index < shape[0]);
  ArrayView part;
  part.type = type;
  part.shape.assign(shape.begin() + 1, shape.end());
  part.strides.assign(strides.begin() + 1, strides.end());
  const std::int64_t offset = index * strides[0] * element_bytes(type);
  part.bytes = bytes.subspan(std::min(static_cast<std::size_t>(offset), bytes.size()));
  return part;
}

std::string ArrayView::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

std::optional<std::int64_t> reached_bytes(ElementType type, std::span<const std::int64_t> shape,
                                          std::span<const std::int64_t> strides) {
  std::optional<std::int64_t> count = 1;
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0 || strides[axis] < 0) return std::nullopt;
    count = checked_mul(*count, shape[axis]);
    if (!count.has_value()) return std::nullopt;
    if (shape[axis] == 0) continue;
    const std::optional<std::int64_t> far = checked_mul(shape[axis] - 1, strides[axis]);
    if (!far.has_value()) return std::nullopt;
    const std::optional<std::int64_t> sum = checked_add(last, *far);
    if (!sum.has_value()) return std::nullopt;
    last = *sum;
  }
  // A stride of 0 would let a small file stand for any number of elements.
  const std::optional<std::int64_t> elements = checked_add(last, 1);
  if (!elements.has_value() || (*count > *elements)) return std::nullopt;
  if (*count == 0) return 0;
  return checked_mul(*elements, element_bytes(type));
}

void read_integers(const ArrayView& row, std::int64_t begin, std::span<std::int64_t> out) {
  copy_integers(row, begin, out);
}

void read_integers(const ArrayView& row, std::int64_t begin, std::span<std::int32_t> out) {
  copy_integers(row, begin, out);
}

void read_reals(const ArrayView& row, std::int64_t begin, std::span<double> out) {
  if (is_integer(row.type)) {
    std::vector<std::int64_t> integers(out.size());
    copy_integers(row, begin, std::span(integers));
    std::copy(integers.begin(), integers.end(), out.begin());
    return;
  }
  const std::int64_t stride = row.strides[0];
  const std::byte* from = row.bytes.data() + begin * stride * element_bytes(row.type);
  if (row.type == ElementType::kF16) return copy_elements<Half>(from, stride, out);
  if (row.type == ElementType::kBf16) return copy_elements<Bfloat>(from, stride, out);
  if (row.type == ElementType::kF32) return copy_elements<float>(from, stride, out);
  copy_elements<double>(from, stride, out);
}

}  // namespace moe::routing
