#include "lib/client/read_window.hpp"

namespace moe::client {

void ReadWindow::note(double gap_s, double time_s) {
  ++num_since_close_;
  if (gap_s < kClose_s) {
    const bool is_rare = num_since_close_ > kMinGapsBetweenClose;
    num_since_close_ = 0;
    if (!is_rare) {
      open_until_s_ = -1.0;
      barred_until_s_ = time_s + kBar_s;
      run_length_ = 0;
      return;
    }
  }
  if (run_length_ == 0) run_begin_s_ = time_s;
  if (++run_length_ < kRun) return;
  run_length_ = 0;
  const bool is_fast = static_cast<double>(kRun) > kMinRate_per_s * (time_s - run_begin_s_);
  if (is_fast && time_s >= barred_until_s_) open_until_s_ = time_s + kHold_s;
}

}  // namespace moe::client
