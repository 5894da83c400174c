#pragma once

// Marks calls of a library that may not come back, so that another thread can go on without the one
// that is inside, and be sure that it touches nothing any more.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace moe::comm {

class LibraryCalls {
 public:
  // By the thread that calls. Once abandoned it does not return from here.
  template <class Call>
  auto inside(Call call) {
    num_calls_.fetch_add(1, std::memory_order_relaxed);
    place_.store(Place::kInside);
    const auto result = call();
    Place expected = Place::kInside;
    if (!place_.compare_exchange_strong(expected, Place::kOutside)) wait_for_the_end();
    return result;
  }
  // Calls begun so far: a thread that comes back from short ones moves on.
  [[nodiscard]] std::int64_t num_calls() const {
    return num_calls_.load(std::memory_order_relaxed);
  }
  // By another one: true when that thread is inside, which it then is for good.
  [[nodiscard]] bool abandon() {
    Place expected = Place::kInside;
    return place_.compare_exchange_strong(expected, Place::kAbandoned);
  }

 private:
  enum class Place : std::uint8_t { kOutside, kInside, kAbandoned };

  [[noreturn]] static void wait_for_the_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }

  std::atomic<Place> place_{Place::kOutside};
  std::atomic<std::int64_t> num_calls_{0};
};

}  // namespace moe::comm
