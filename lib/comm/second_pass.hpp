#pragma once

// The second pass over pairs: suspects of the first are paired again with ranks known to be good,
// which tells a bad node from one that had a bad partner.

#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/comm/pairs.hpp"
#include "lib/topology/suspects.hpp"

namespace moe::comm {

struct SecondPass {
  topology::PairJudgement first;    // what the first pass says
  topology::PairJudgement verdict;  // after the second; the same when there was nobody to test
  std::vector<PairFigure> figures;  // of the second pass
};

// Rates by [sender][receiver]; `nodes` says which ranks share a host.
[[nodiscard]] topology::PairMatrix matrix_of(const std::vector<PairFigure>& figures,
                                             std::span<const int> nodes);

// Collective. `first` is whole at rank 0 and not looked at elsewhere; the result is whole at rank
// 0. A pair is slow below min_share of what pairs of its kind reach.
[[nodiscard]] SecondPass run_second_pass(Communicator& communicator, const PairOptions& options,
                                         const std::vector<PairFigure>& first,
                                         std::span<const int> nodes, double min_share);

}  // namespace moe::comm
