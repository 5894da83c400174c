#pragma once

// Measured times of collectives and of MoE dispatch and combine, as rows of CSV files
// (scenarios/measured). Columns are found by name; unknown ones are passed over.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace moe::topology {

struct CollectivePoint {
  std::string gpu;
  std::string library;
  std::string version;
  std::string op;  // alltoall, all_gather, reduce_scatter, all_reduce
  std::string dtype;
  std::int64_t num_ranks = 0;
  std::int64_t bytes = 0;  // as nccl-tests counts them
  double time_s = 0.0;
};

struct MoePoint {
  std::string gpu;
  std::string library;
  std::string version;
  std::string api;
  std::string phase;  // dispatch, combine, prepare, ...
  std::string dtype;
  std::int64_t num_ranks = 0;
  std::int64_t num_nodes = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::int64_t num_experts = 0;
  std::int64_t tokens_per_rank = 0;
  std::int64_t num_sms = 0;  // 0: not applicable
  double time_s = 0.0;
};

inline constexpr std::size_t kMaxPoints = 2000000;

// Throw Error(kInput) with the line and the column.
[[nodiscard]] std::vector<CollectivePoint> parse_collective_points(std::string_view csv,
                                                                   const std::string& where);
[[nodiscard]] std::vector<MoePoint> parse_moe_points(std::string_view csv,
                                                     const std::string& where);
[[nodiscard]] std::vector<CollectivePoint> read_collective_points(
    const std::filesystem::path& path);
[[nodiscard]] std::vector<MoePoint> read_moe_points(const std::filesystem::path& path);

// True when the first line names the columns of dispatch and combine rows.
[[nodiscard]] bool is_moe_csv(std::string_view csv);

// One in `divisor` keys, chosen by a hash of the key: which points a check keeps from a fit.
[[nodiscard]] bool is_held_out(std::string_view key, std::uint64_t divisor = 4);

}  // namespace moe::topology
