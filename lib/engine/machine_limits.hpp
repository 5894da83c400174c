#pragma once

// What this machine can do at best, measured in a few seconds: how fast memory is read, and how
// fast the kernels multiply when their data is already in the cache. A run is judged against these
// figures instead of a data sheet's. Sources of the method: the roofline model (Williams, Waterman,
// Patterson 2009); reads only, as in the read kernel of LIKWID, because weights are never written.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"

namespace moe::engine {

enum class MemoryLevel : std::uint8_t { kL2, kL3, kDram };
[[nodiscard]] const char* memory_level_name(MemoryLevel level);  // "L2", "L3", "DRAM"

struct BandwidthLimit {
  MemoryLevel level = MemoryLevel::kDram;
  std::int32_t num_threads = 1;
  std::int64_t buffer_bytes = 0;  // of all threads together
  double bytes_per_s = 0.0;       // the best sample
  std::int32_t num_samples = 0;
};

struct PeakLimit {
  kernels::Isa isa = kernels::Isa::kScalar;
  kernels::WeightFormat weights = kernels::WeightFormat::kF32;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  std::int32_t num_threads = 1;
  double flops_per_s = 0.0;   // the best sample; multiply and add count as two
  std::int32_t num_rows = 0;  // tokens of the product that reached it
};

struct MachineLimits {
  std::vector<BandwidthLimit> bandwidth;
  std::vector<PeakLimit> peaks;
  double wall_s = 0.0;
  bool is_partial = false;  // interrupted

  // nullptr when it was not measured.
  [[nodiscard]] const BandwidthLimit* find(MemoryLevel level, std::int32_t num_threads) const;
  [[nodiscard]] const PeakLimit* find(kernels::Isa isa, kernels::WeightFormat weights,
                                      kernels::ActivationFormat activations,
                                      std::int32_t num_threads) const;
};

struct PeakCase {
  kernels::Isa isa = kernels::Isa::kScalar;
  kernels::WeightFormat weights = kernels::WeightFormat::kF32;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
};

struct LimitsOptions {
  // Each is measured; 1 and all threads as a rule.
  std::vector<std::int32_t> thread_counts;
  std::vector<PeakCase> peaks;
  // Of one core and of the machine; 0: unknown, the level is left out.
  std::int64_t l2_bytes = 0;
  std::int64_t l3_bytes = 0;
  std::int64_t dram_buffer_bytes = 0;  // 0: no DRAM figure. Should be four times the L3 or more.
  double seconds_per_figure = 0.1;
};

// Every pair of weight and activation format that a level can multiply, for every level that this
// machine and build have.
[[nodiscard]] std::vector<PeakCase> all_peak_cases();

// Buffer that is large enough not to be served from the L3, and no more than a quarter of the
// memory that is available.
[[nodiscard]] std::int64_t dram_buffer_bytes(std::int64_t l3_bytes, std::int64_t available_bytes);

[[nodiscard]] MachineLimits measure_machine_limits(const LimitsOptions& options, const Clock& clock,
                                                   Progress& progress, const Interrupt& interrupt);

}  // namespace moe::engine
