#pragma once

// Dispatch and combine in chunks while the experts of the chunk before compute, and the pair of
// collectives that some engines use instead.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/comm/measure.hpp"
#include "lib/comm/moe_traffic.hpp"

namespace moe::comm {

// A stand-in for the experts: a fixed amount of floating-point work on this core, in slices of
// about 20 microseconds between which transfers are looked after.
class ComputeLoad {
 public:
  // Finds out how much work the duration is, on this core, undisturbed.
  explicit ComputeLoad(double duration_s);

  // All of it divided by num_chunks. `between` is called after each slice.
  template <typename Between>
  void run(std::int64_t num_chunks, Between&& between) {
    const std::int64_t slices = std::max<std::int64_t>(1, num_slices_ / num_chunks);
    for (std::int64_t i = 0; i < slices; ++i) {
      run_slice();
      between();
    }
  }

 private:
  void run_slice();
  std::vector<float> values_;
  std::int64_t num_slices_ = 1;
};

struct PipelineOptions {
  std::vector<std::int64_t> chunk_counts = {1, 2, 4, 8};
  double compute_s = 0.0;  // of the experts of one rank, all chunks together
  std::int64_t num_repeats = 10;
  std::uint64_t seed = 1;
  const Interrupt* interrupt = nullptr;
};

// Times are those of the slowest rank, medians over the repeats.
struct PipelineResult {
  std::int64_t num_chunks = 1;
  double total_s = 0.0;     // dispatch, compute and combine, overlapped
  double compute_s = 0.0;   // the same work without any transfer
  double comm_s = 0.0;      // the same transfers without any work
  double idle_ratio = 0.0;  // share of the total in which the experts do not compute
};

// Collective; one dispatch and one combine exchange. Parts are divided into equal chunks. Whole at
// rank 0, empty elsewhere.
[[nodiscard]] std::vector<PipelineResult> measure_pipeline(Communicator& communicator,
                                                           const MoeStages& stages,
                                                           const PipelineOptions& options);

// Collective. All-gather of every rank's tokens and reduce-scatter of the results: bytes do not
// depend on the routing. Verified: the gathered data and the sums.
struct GatherScatterResult {
  std::int64_t gather_bytes = 0;   // that one rank contributes
  std::int64_t scatter_bytes = 0;  // of one block, as floats
  std::vector<double> gather_s;    // of the slowest rank, each iteration
  std::vector<double> scatter_s;
  std::int64_t num_wrong = 0;  // bytes and sums, over all ranks
};
[[nodiscard]] GatherScatterResult measure_gather_scatter(Communicator& communicator,
                                                         std::int64_t gather_bytes,
                                                         std::int64_t scatter_bytes,
                                                         const MeasureOptions& options);

}  // namespace moe::comm
