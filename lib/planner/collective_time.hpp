#pragma once

// Times of all-reduce and of MoE dispatch and combine: alpha + volume / bandwidth + gamma *
// sqrt(volume), fitted per GPU, engine and number of ranks (scenarios/measured/collectives.json).
// Where nothing was measured, the link's rate and a stated latency stand in.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/planner/hardware.hpp"

namespace moe::planner {

struct CollectiveFit {
  double alpha_s = 0.0;
  double bytes_per_s = 1.0;      // bus bandwidth
  double s_per_sqrt_byte = 0.0;  // gamma
  bool is_measured = false;      // on this GPU with this number of ranks
  bool is_between_nodes = false;
  std::string source;
};

struct CollectiveRow {
  std::string gpu;
  std::string library;  // engine_name(), "nccl"
  std::int32_t num_ranks = 0;
  double alpha_s = 0.0;
  double bytes_per_s = 0.0;
  double s_per_sqrt_byte = 0.0;
};

// Links out of a scale-up domain.
struct ScaleOut {
  double bytes_per_s = 50e9;  // per GPU, one direction (400 Gbit/s)
  double efficiency = 0.8;
  double latency_s = 25e-6;  // of one collective step across nodes
  bool is_assumed = true;
};

class CollectiveTable {
 public:
  CollectiveTable() = default;
  explicit CollectiveTable(std::vector<CollectiveRow> rows);

  // All-reduce of `num_ranks` GPUs: the engine's own inside CUDA graphs where it was measured,
  // NCCL's otherwise, the link's rate where neither was; across nodes two levels.
  [[nodiscard]] CollectiveFit all_reduce(const Accelerator& gpu, std::string_view engine,
                                         std::int32_t num_ranks, const ScaleOut& network) const;
  [[nodiscard]] const std::vector<CollectiveRow>& rows() const { return rows_; }

 private:
  std::vector<CollectiveRow> rows_;
};

// 0 for one rank. `bytes`: the buffer of one rank.
[[nodiscard]] double all_reduce_time_s(const CollectiveFit& fit, std::int32_t num_ranks,
                                       double bytes);

// One MoE layer's dispatch and combine for `num_tokens` tokens of a rank, each sent to top_k
// experts spread over num_ranks ranks: FP8 out (1 byte and a scale per 128), BF16 back.
struct AllToAllTime {
  double alpha_s = 0.0;
  double inside_s = 0.0;   // volume over the scale-up links
  double outside_s = 0.0;  // volume between nodes
  double volume_s() const { return inside_s + outside_s; }
  double total_s() const { return alpha_s + volume_s(); }
};
// Kernels for many tokens send a token to a node once (`is_deduplicated`), low-latency kernels once
// for every expert.
[[nodiscard]] AllToAllTime moe_all_to_all_time_s(const Accelerator& gpu, std::int32_t num_ranks,
                                                 const ScaleOut& network, double num_tokens,
                                                 double top_k, double hidden_size,
                                                 bool is_deduplicated);

// Throws Error(kInput) naming the entry and the field.
[[nodiscard]] CollectiveTable parse_collective_table(std::string_view json_text,
                                                     const std::string& where);

}  // namespace moe::planner
