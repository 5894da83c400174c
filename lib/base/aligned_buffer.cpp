#include "lib/base/aligned_buffer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void fail_allocation(std::string_view what) {
  throw Error(ErrorCode::kRuntime,
              fmt::format("could not allocate {} bytes of memory; close other programs or choose a "
                          "smaller model, batch or context",
                          what));
}

}  // namespace

// Anonymous mappings are zero-filled, page aligned, and given back to the system at once.
AlignedBytes::AlignedBytes(std::int64_t size_bytes) {
  MOE_CHECK(size_bytes >= 0);
  size_ = static_cast<std::size_t>(size_bytes);
  if (size_ == 0) return;
  const bool huge = size_ >= kHugePageBytes;
  const std::size_t unit = huge ? kHugePageBytes : kPageBytes;
  // Huge pages begin at multiples of their size, which not every system gives by itself: what is
  // mapped before and after is given back.
  const std::size_t slack = huge ? kHugePageBytes : 0;
  mapped_ = (size_ + unit - 1) / unit * unit;
  void* const mapped =
      ::mmap(nullptr, mapped_ + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail_allocation(std::to_string(size_));
  }
  data_ = static_cast<std::byte*>(mapped);
  if (!huge) return;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(data_) % kHugePageBytes;
  const std::size_t before = past == 0 ? 0 : kHugePageBytes - past;
  if (before > 0) ::munmap(data_, before);
  data_ += before;
  if (slack > before) ::munmap(data_ + mapped_, slack - before);
  ::madvise(data_, mapped_, MADV_HUGEPAGE);
}

AlignedBytes AlignedBytes::of_elements(std::int64_t count, std::int64_t element_bytes) {
  const std::optional<std::int64_t> size_bytes = checked_mul(count, element_bytes);
  if (!size_bytes) fail_allocation("more than 2^63");
  return AlignedBytes(*size_bytes);
}

AlignedBytes::AlignedBytes(AlignedBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

AlignedBytes::~AlignedBytes() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace moe
