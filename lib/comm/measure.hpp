#pragma once

// Measures one exchange again and again: warm-up that touches every pair, times of every iteration
// at every rank, data verified. Plain results; lib/app makes a report of them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/comm/pattern.hpp"

namespace moe::comm {

enum class Check : std::uint8_t {
  kOff,
  kSize,   // one exchange of fresh data after the timed ones
  kEvery,  // fresh data in every timed iteration, outside the timer
};

struct MeasureOptions {
  std::int64_t num_warm_up = 5;
  std::int64_t num_iterations = 0;  // 0: as many as fit into time_budget_s, within the limits
  std::int64_t min_iterations = 10;
  std::int64_t max_iterations = 500;  // supports a p99 (459 samples) where time allows
  double time_budget_s = 0.5;
  Check check = Check::kSize;
  std::uint64_t seed = 1;
  const Interrupt* interrupt = nullptr;
};

// Where bytes were wrong at a receiver.
struct WrongData {
  int sender = 0;
  int receiver = 0;
  std::int64_t num_wrong_bytes = 0;
  std::int64_t first_offset = 0;  // within what the pair moved
  std::int64_t iteration = 0;     // -1: the check after the timed ones
};

struct ExchangeResult {
  std::int64_t bytes = 0;  // of the rank that sends most, its own part included
  // Times of every iteration: of each rank (from the common start to its own end), and the slowest
  // rank's, which is the time of the iteration.
  std::vector<std::vector<double>> rank_s;  // [rank][iteration]
  std::vector<double> iteration_s;
  bool is_verified = false;
  std::vector<WrongData> wrong;
  bool is_partial = false;  // stopped by the interrupt
};

// Collective; the result is whole at rank 0 and empty elsewhere.
[[nodiscard]] ExchangeResult measure_exchange(Communicator& communicator,
                                              const TrafficMatrix& traffic,
                                              const MeasureOptions& options);

}  // namespace moe::comm
