#pragma once

// What the experts of a model had to do: one non-negative number per layer and expert, in any unit
// that adds up (routed copies, tokens, seconds). The planners and replays below take nothing else.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moe::balance {

struct LoadMatrix {
  std::int32_t num_layers = 0;
  std::int32_t num_experts = 0;
  std::vector<double> values;  // [num_layers, num_experts]

  [[nodiscard]] std::span<const double> layer(std::int32_t layer) const {
    return {values.data() + static_cast<std::size_t>(layer) * static_cast<std::size_t>(num_experts),
            static_cast<std::size_t>(num_experts)};
  }
};

// rows[layer][expert]; counts up to 2^53 keep their value. Throws Error(kInput) when rows differ in
// length, a count is negative (a 32-bit counter that wrapped) or there is no layer or expert.
[[nodiscard]] LoadMatrix make_loads(const std::vector<std::vector<std::int64_t>>& rows,
                                    const std::string& where);

// Throws Error(kInput) on NaN, infinity, negative values and a size that does not match. `where`
// names the source.
void check_loads(const LoadMatrix& loads, const std::string& where);

[[nodiscard]] double total(std::span<const double> layer_loads);

// The matrix with each layer scaled to a mean of 1 per expert; layers without load stay zero. What
// several traces of different length are compared by.
[[nodiscard]] LoadMatrix scaled_to_equal_totals(const LoadMatrix& loads);

}  // namespace moe::balance
