#pragma once

// A typed, strided view of numbers in a mapped file: what a .npy file, a safetensors entry and a
// tensor of a torch dump have in common.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::routing {

enum class ElementType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBf16,
  kF32,
  kF64,
};

[[nodiscard]] std::int64_t element_bytes(ElementType type);
[[nodiscard]] const char* element_name(ElementType type);  // "int32"
[[nodiscard]] bool is_integer(ElementType type);           // bool counts as one
// As safetensors spells it ("I32"); nullopt for a type that holds no plain numbers.
[[nodiscard]] std::optional<ElementType> element_of_safetensors(std::string_view dtype);
// As numpy spells it ("<i4", "|u1"); nullopt also for big-endian numbers.
[[nodiscard]] std::optional<ElementType> element_of_numpy(std::string_view descr);

// `bytes` holds every element that shape and strides reach; makers of views have checked it.
struct ArrayView {
  std::string name;
  ElementType type = ElementType::kI64;
  std::vector<std::int64_t> shape;    // each >= 0
  std::vector<std::int64_t> strides;  // in elements, each >= 0
  std::span<const std::byte> bytes;   // from element 0 on

  [[nodiscard]] std::size_t rank() const { return shape.size(); }
  [[nodiscard]] std::int64_t num_elements() const;
  // One axis less: the part at this index of the first axis. rank() >= 1, index in range.
  [[nodiscard]] ArrayView at(std::int64_t index) const;
  [[nodiscard]] std::string shape_text() const;  // "[2020, 26, 6]"
};

// Strides of a dense array in C order.
[[nodiscard]] std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape);
// Bytes that a view reaches; nullopt on overflow or on a negative size or stride.
[[nodiscard]] std::optional<std::int64_t> reached_bytes(ElementType type,
                                                        std::span<const std::int64_t> shape,
                                                        std::span<const std::int64_t> strides);

// Elements begin, begin + 1, ... of a view of rank 1, as many as out holds. Integers of 64 bits
// without a sign wrap around; floats are an error of the caller for read_integers.
void read_integers(const ArrayView& row, std::int64_t begin, std::span<std::int64_t> out);
void read_integers(const ArrayView& row, std::int64_t begin, std::span<std::int32_t> out);
// Any type.
void read_reals(const ArrayView& row, std::int64_t begin, std::span<double> out);

}  // namespace moe::routing
