#include "tests/lib/engine/count_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> counter{0};
}  // namespace

void* operator new(std::size_t size) {
  counter.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// A sanitizer has its own of these, and does not expect what they return in the deletes below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace moe::engine::testing {

std::int64_t num_allocations() {
  return counter.load();
}

}  // namespace moe::engine::testing
