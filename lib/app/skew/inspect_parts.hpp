#pragma once

// The parts of a moe-skew inspect report, each from plain figures.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/report/report.hpp"
#include "lib/routing/expert_counts.hpp"
#include "lib/routing/skew.hpp"
#include "lib/routing/token_figures.hpp"

namespace moe::app {

// How the GPUs' loads follow from experts.
struct GpuView {
  std::int64_t num_gpus = 0;  // 0: not asked for
  std::int64_t num_nodes = 1;
  bool is_recorded = false;  // placement from the input; otherwise experts in order
};

// Loads by GPU of one layer's counts.
[[nodiscard]] std::vector<double> gpu_loads(const routing::ExpertCounts& counts,
                                            const GpuView& view, std::int64_t layer_idx,
                                            std::span<const std::int64_t> of_layer);

// Whole-input skew by layer: table "layers", metrics, and the heat maps "experts" and "gpus".
void add_layer_skew(const routing::ExpertCounts& counts, const std::vector<std::int64_t>& total,
                    const GpuView& view, report::Report& report);
void add_expert_tables(const routing::ExpertCounts& counts, const std::vector<std::int64_t>& total,
                       report::Report& report);
void add_gpu_tables(const routing::ExpertCounts& counts, const std::vector<std::int64_t>& total,
                    const GpuView& view, report::Report& report);
// One row a window, and what is averaged over windows.
void add_windows(const routing::ExpertCounts& windows, const GpuView& view, std::int64_t top_k,
                 report::Report& report);
// Drops at fixed capacity factors, capacity per window.
void add_drops(const routing::ExpertCounts& windows, std::int64_t top_k, report::Report& report);
void add_token_figures(const routing::TokenFigures& figures, const GpuView& view,
                       report::Report& report);

}  // namespace moe::app
