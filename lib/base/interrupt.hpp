#pragma once

// A flag that long work looks at: set from a signal handler by lib/app, by tests, or by a deadline.
// Work that sees it stops at the next safe point and returns what it has, marked as partial.

#include <atomic>

namespace moe {

class Interrupt {
 public:
  void request() noexcept { requested_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool requested() const noexcept {
    return requested_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> requested_{false};
};

}  // namespace moe
