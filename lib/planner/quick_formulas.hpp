#pragma once

// The short formulas that circulate for MoE capacity, each beside the right one, with the factor
// between them and one line that says where the short one goes wrong. Both are computed from the
// same inputs, for any model: whoever types in the published example gets its published figure on
// the left.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/fit.hpp"
#include "lib/planner/hardware.hpp"

namespace moe::planner {

// What goes into the short formulas. 0: the model's own value.
struct QuickInputs {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t ffn_width = 0;  // of one expert
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  double bytes_per_weight = 2.0;
  std::int32_t num_ranks = 8;
  std::int64_t tokens = 512;           // of the traffic example
  std::int64_t context_tokens = 4096;  // of the cache example
  std::int64_t output_tokens = 512;
  double hbm_bytes = 80e9;
  double system_bytes = 8e9;
  double host_link_bytes_per_s = 50e9;
  // Right answers: the GPU, and everything a fit needs.
  Accelerator gpu;
  FitOptions fit;
  bool has_fp8_dispatch = false;  // tokens travel as FP8 on the way out
};

struct QuickRow {
  std::string id;  // "traffic.remote_share", stable
  std::string title;
  std::string quick_formula;
  std::string right_formula;
  std::string unit;  // "bytes", "s", "1", "flop/s", "bytes/s"
  std::optional<double> quick;
  std::optional<double> right;
  std::string why;  // where the short formula goes wrong
  // right / quick; absent when either is, or quick is 0.
  [[nodiscard]] std::optional<double> factor() const;
};

// Every row that applies to the model; MoE models only (Error(kUsage) otherwise).
[[nodiscard]] std::vector<QuickRow> quick_rows(const model::Architecture& architecture,
                                               const QuickInputs& inputs);

}  // namespace moe::planner
