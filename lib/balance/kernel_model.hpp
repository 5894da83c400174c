#pragma once

// Time of the expert kernels of one layer on one GPU, from fits to measured kernels: floor +
// reading the weights of every expert that got a token + arithmetic of every token. Skew therefore
// makes a small batch cheaper (fewer experts are read) and a large one dearer (the busiest GPU has
// more rows), as measurements show; multiplying by max / mean would be wrong for decode.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/balance/placement.hpp"

namespace moe::balance {

// One fit, in base units.
struct KernelFit {
  std::string gpu;     // "h100_sxm"
  std::string engine;  // "trtllm"
  std::string quant;   // "fp8_block"
  double floor_s = 0.0;
  double bytes_per_s = 0.0;   // achieved
  double flops_per_s = 0.0;   // achieved
  bool takes_larger = false;  // larger of the two terms instead of their p-norm
  double p = 1.0;
  double pad_rows = 0.0;
  double bytes_per_weight = 0.0;
  double held_out_error = 0.0;  // median, of points not fitted
};

// scenarios/measured/expert_kernels.json. Throws Error(kInput).
[[nodiscard]] std::vector<KernelFit> read_kernel_fits(std::string_view text,
                                                      const std::string& where);

// Throws Error(kUsage) listing what there is when none fits.
[[nodiscard]] const KernelFit& find_kernel_fit(const std::vector<KernelFit>& fits,
                                               const std::string& gpu, const std::string& engine,
                                               const std::string& quant);

struct ExpertShape {
  std::int64_t hidden_size = 0;
  std::int64_t moe_intermediate_size = 0;
};

// `rows` copies that arrive, `hits` experts with at least one of them, `tokens` of the whole batch.
[[nodiscard]] double kernel_time_s(const KernelFit& fit, const ExpertShape& shape, double rows,
                                   double hits, double tokens);

// Sum over layers of the slowest GPU. counts[layers, experts] of one step, copies; an expert's
// copies are split evenly over its replicas. Without a fit (null) the time is counted in copies:
// rows of the slowest GPU / speed.
[[nodiscard]] double step_time(const Placement& placement, std::span<const double> speeds,
                               std::span<const double> counts, double tokens, const KernelFit* fit,
                               const ExpertShape& shape);

}  // namespace moe::balance
