#pragma once

// How evenly a placement spreads loads over GPUs. Balancedness of a layer is mean over GPUs /
// largest GPU, in (0, 1]; with GPUs of different speed it is the time that a perfect split would
// take / the time of the slowest GPU. A layer without load has none: neither 1 nor 0.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/balance/loads.hpp"
#include "lib/balance/placement.hpp"

namespace moe::balance {

// loads[gpu]; speeds empty: all equal.
[[nodiscard]] std::optional<double> balancedness(std::span<const double> loads,
                                                 std::span<const double> speeds = {});

struct BalanceSummary {
  std::int32_t num_layers = 0;  // with load
  // Absent when no layer has load.
  std::optional<double> mean;
  std::optional<double> worst;
  std::optional<double> p10;  // nearest rank over layers
  std::int32_t worst_layer = -1;
  // sum over layers of the mean / sum over layers of the maximum: what step time follows when
  // layers run one after the other and cost is linear in load.
  std::optional<double> of_sums;
  std::vector<std::optional<double>> layers;  // [num_layers of the placement]
};

// Throws Error(kInput) when the loads have other layers or experts than the placement.
[[nodiscard]] BalanceSummary balance_of(const Placement& placement, const LoadMatrix& loads,
                                        std::span<const double> speeds = {});

}  // namespace moe::balance
