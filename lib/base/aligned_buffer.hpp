#pragma once

// The only place that allocates raw memory: 64-byte aligned, huge pages asked for above 2 MiB,
// zero-filled.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace moe {

// Move-only bytes. Throws Error(kRuntime) when the memory is not to be had.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::int64_t size_bytes);
  // count x element_bytes; a product that overflows is memory that is not to be had.
  [[nodiscard]] static AlignedBytes of_elements(std::int64_t count, std::int64_t element_bytes);
  AlignedBytes(AlignedBytes&& other) noexcept;
  AlignedBytes& operator=(AlignedBytes&& other) noexcept;
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes();

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return static_cast<std::int64_t>(size_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

// A typed array of trivial elements on AlignedBytes.
template <typename Element>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<Element>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::int64_t count)
      : bytes_(AlignedBytes::of_elements(count, static_cast<std::int64_t>(sizeof(Element)))) {}

  [[nodiscard]] Element* data() { return reinterpret_cast<Element*>(bytes_.data()); }
  [[nodiscard]] const Element* data() const {
    return reinterpret_cast<const Element*>(bytes_.data());
  }
  [[nodiscard]] std::int64_t size() const {
    return bytes_.size_bytes() / static_cast<std::int64_t>(sizeof(Element));
  }
  [[nodiscard]] std::int64_t size_bytes() const { return bytes_.size_bytes(); }
  [[nodiscard]] std::span<Element> span() { return {data(), static_cast<std::size_t>(size())}; }
  [[nodiscard]] std::span<const Element> span() const {
    return {data(), static_cast<std::size_t>(size())};
  }
  [[nodiscard]] Element& operator[](std::int64_t index) { return data()[index]; }
  [[nodiscard]] const Element& operator[](std::int64_t index) const { return data()[index]; }

 private:
  AlignedBytes bytes_;
};

}  // namespace moe
