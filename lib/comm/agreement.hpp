#pragma once

// Counts that two sides must agree on. Checked before bytes move, because a library that waits for
// bytes that nobody sends waits for ever.

#include <string>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace moe::comm {

struct CountMismatch {
  int sender = 0;
  int receiver = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t expected_bytes = 0;
};

// Collective; the same answer at every rank.
[[nodiscard]] std::vector<CountMismatch> find_mismatches(Communicator& communicator,
                                                         const Exchange& exchange);

// Collective. Throws Error(kUsage) at every rank when counts differ, naming the first pair.
void require_agreement(Communicator& communicator, const Exchange& exchange);

}  // namespace moe::comm
