#pragma once

// Time as double seconds since an arbitrary start, behind an interface so that tests can move it by
// hand.

#include <chrono>

namespace moe {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual double now_s() const = 0;
};

// CLOCK_MONOTONIC. The steady clock of libstdc++ is CLOCK_MONOTONIC; its high_resolution_clock is
// not.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class FakeClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override { return now_s_; }
  void advance_s(double delta_s) { now_s_ += delta_s; }

 private:
  double now_s_ = 0.0;
};

}  // namespace moe
