#pragma once

// How long a wait may last. Costs nothing until the first look that found nothing; then it spins a
// little, then gives the core away between looks.

#include <thread>

#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"

namespace moe::comm {

// Looks before a rank that has a core of its own gives it away: a few microseconds, longer than a
// small exchange takes and than such ranks are apart.
inline constexpr int kOwnCoreSpins = 2000;

class Patience {
 public:
  // After the run was asked to stop, a wait gets this much more: enough for ranks that are alive,
  // less than launchers give between SIGTERM and SIGKILL (Open MPI: 1 s).
  static constexpr double kAfterInterruptS = 0.25;

  // `num_spins` looks before the core is given away; 0 where ranks share cores.
  Patience(double limit_s, const Interrupt* interrupt, int num_spins)
      : limit_s_(limit_s), interrupt_(interrupt), num_spins_(num_spins) {}

  // To be called after each look that found nothing: waits a moment; true when it has been too
  // long.
  [[nodiscard]] bool is_over() {
    if (num_looks_++ < num_spins_) return false;
    const double now_s = clock_.now_s();
    if (begin_s_ < 0.0) begin_s_ = now_s;
    waited_s_ = now_s - begin_s_;
    const bool is_interrupted = interrupt_ != nullptr && interrupt_->requested();
    if (is_interrupted && interrupted_s_ < 0.0) interrupted_s_ = now_s;
    if (is_interrupted && now_s - interrupted_s_ >= kAfterInterruptS) return true;
    if (waited_s_ >= limit_s_) return true;
    std::this_thread::yield();
    return false;
  }

  [[nodiscard]] double waited_s() const { return waited_s_; }
  [[nodiscard]] bool was_interrupted() const { return interrupted_s_ >= 0.0; }

 private:
  SteadyClock clock_;
  double limit_s_;
  const Interrupt* interrupt_;
  int num_spins_;
  int num_looks_ = 0;
  double begin_s_ = -1.0;
  double interrupted_s_ = -1.0;
  double waited_s_ = 0.0;
};

}  // namespace moe::comm
