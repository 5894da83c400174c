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
#include "lib/engine/instruction_peak.hpp"
#include "lib/engine/product_loop.hpp"
#include "lib/engine/width_probe.hpp"

namespace moe::engine {

enum class MemoryLevel : std::uint8_t { kL2, kL3, kDram };
[[nodiscard]] const char* memory_level_name(MemoryLevel level);  // "L2", "L3", "DRAM"

// The best sample of a rate, over all of them and apart by the state of the cores around it.
struct RateByState {
  double best = 0.0;
  double best_free = 0.0;    // 0: no sample with all cores free
  double best_shared = 0.0;  // 0: no sample with a shared core
  std::int32_t num_samples = 0;
  std::int32_t num_free = 0;
  std::int32_t num_shared = 0;

  void add(double rate, CoreState state);
};

struct BandwidthLimit {
  MemoryLevel level = MemoryLevel::kDram;
  std::int32_t num_threads = 1;
  std::int64_t buffer_bytes = 0;  // of all threads together
  RateByState bytes_per_s;
};

// Of the kernels, whose weights may have to be unpacked first.
struct PeakLimit {
  PeakCase of;
  std::int32_t num_threads = 1;
  RateByState flops_per_s;    // multiply and add count as two
  std::int32_t num_rows = 0;  // tokens of the product that reached it
};

// Of the bare instruction.
struct InstructionLimit {
  const MultiplyInstruction* instruction = nullptr;
  std::int32_t num_threads = 1;
  RateByState ops_per_s;
};

struct MachineLimits {
  std::vector<BandwidthLimit> bandwidth;
  std::vector<PeakLimit> peaks;
  std::vector<InstructionLimit> instructions;
  double wall_s = 0.0;
  bool is_partial = false;  // interrupted

  // nullptr when it was not measured.
  [[nodiscard]] const BandwidthLimit* find(MemoryLevel level, std::int32_t num_threads) const;
  [[nodiscard]] const PeakLimit* find(const PeakCase& of, std::int32_t num_threads) const;
};

struct LimitsOptions {
  // Each is measured; 1 and all threads as a rule.
  std::vector<std::int32_t> thread_counts;
  std::vector<PeakCase> peaks;
  bool has_instructions = false;  // those of every level that this machine has
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

// Probes the cores around every sample with `watch`, which it calibrates first.
[[nodiscard]] MachineLimits measure_machine_limits(const LimitsOptions& options, CoreWatch& watch,
                                                   const Clock& clock, Progress& progress,
                                                   const Interrupt& interrupt);

}  // namespace moe::engine
