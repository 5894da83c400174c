#pragma once

// What the groups of rows of quick_formulas.hpp share.

#include <vector>

#include "lib/planner/quick_formulas.hpp"

namespace moe::planner::quick {

// The figures both sides are made from.
struct Geometry {
  // As the short formulas take them.
  double hidden = 0.0;
  double layers = 0.0;
  double ffn = 0.0;
  double experts = 0.0;
  double top_k = 0.0;
  // As the model has them.
  double true_hidden = 0.0;
  double moe_layers = 0.0;
  double true_top_k = 0.0;
  double expert_elements = 0.0;      // of one expert in one layer, all its matrices
  double num_matrices = 3.0;         // of one expert
  double all_expert_elements = 0.0;  // every expert of every layer
  double one_expert_bytes = 0.0;     // as stored
  double kv_token_bytes = 0.0;       // all layers, one GPU holding all heads
  double total_parameters = 0.0;
  double active_parameters = 0.0;
  // Bytes that one token and expert send out and bring back.
  double dispatch_bytes = 0.0;
  double combine_bytes = 0.0;
};

// The published example calls three quarters of its experts' bytes and of its traffic the
// practical figure; no mechanism stands behind either.
inline constexpr double kPracticalRatio = 0.75;
// "8 to 12 MB with generation" of the published example.
inline constexpr double kGenerationKvBytes = 10e6;

void add_traffic_rows(const Geometry& g, const QuickInputs& in, std::vector<QuickRow>& rows);
void add_memory_rows(const model::Architecture& architecture, const Geometry& g,
                     const QuickInputs& in, std::vector<QuickRow>& rows);
void add_cache_rows(const model::Architecture& architecture, const Geometry& g,
                    const QuickInputs& in, std::vector<QuickRow>& rows);
void add_format_rows(const Geometry& g, const QuickInputs& in, std::vector<QuickRow>& rows);
void add_hardware_rows(const QuickInputs& in, std::vector<QuickRow>& rows);

}  // namespace moe::planner::quick
