#pragma once

// Results of other benchmarks of the all-to-all: nccl-tests as text of every generation and as
// JSON, OSU micro-benchmarks, nvbandwidth as JSON, reports of moe-a2a, tables and logs of MoE
// dispatch and combine (DeepEP and its like). Sizes and bandwidths come out in one meaning,
// that of nccl-tests: bytes that one rank sends in all, its own part included.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

struct ResultRow {
  double bytes = 0.0;
  double time_s = 0.0;
  double busbw_bytes_per_s = 0.0;         // bytes x (n-1)/n / time
  std::optional<std::int64_t> num_wrong;  // nullopt: not checked
  bool is_in_place = false;
};

// One test of nvbandwidth.
struct PairTest {
  std::string name;
  bool has_passed = false;
  std::string status;
  double min_bytes_per_s = 0.0;
  double max_bytes_per_s = 0.0;
  std::string slowest;  // "GPU 0 -> GPU 3"
};

// MoE dispatch or combine. The rate is the logical one that these tools print: bytes of all
// selected token copies, those that stay on the rank or the node included, over the time.
struct DispatchRow {
  std::string phase;           // "dispatch", "cached dispatch", "combine", "dispatch + combine"
  std::string dtype;           // "FP8"; empty: not said
  std::string scope;           // "RDMA", "NVLink"; empty: not said
  std::int64_t num_ranks = 0;  // 0: not known
  double logical_bytes_per_s = 0.0;  // of the ranks that printed it, the median
  double worst_bytes_per_s = 0.0;
  std::optional<std::int64_t> worst_rank;
  std::optional<double> time_s;  // the median
};

struct BenchmarkResults {
  std::string tool;            // "nccl-tests text"
  std::string operation;       // "alltoall"; empty: the file does not say
  std::string size_semantics;  // of the file, before conversion
  std::int64_t num_ranks = 0;
  std::int64_t num_hosts = 0;  // 0: the file does not say
  std::vector<ResultRow> rows;
  std::vector<PairTest> pair_tests;
  std::vector<DispatchRow> dispatch_rows;
  std::optional<bool> is_data_ok;  // the tool's own verdict on its data
  bool is_complete = true;         // the file has its end
  std::vector<Remark> remarks;
};

struct ResultOptions {
  std::int64_t num_ranks = 0;  // for files that do not say; 0: unknown
};

// Any of them, by content. Throws Error(kInput) for anything else, and where the number of ranks is
// needed and not known.
[[nodiscard]] BenchmarkResults read_results(std::string_view text, const std::string& where,
                                            const ResultOptions& options);

[[nodiscard]] BenchmarkResults read_nccl_tests_text(std::string_view text, const std::string& where,
                                                    const ResultOptions& options);
[[nodiscard]] BenchmarkResults read_osu(std::string_view text, const std::string& where,
                                        const ResultOptions& options);
[[nodiscard]] BenchmarkResults read_results_json(std::string_view text, const std::string& where,
                                                 const ResultOptions& options);

// Markdown tables with columns for dispatch and combine, lines of DeepEP's tests (both generations)
// and of programs that print alike. `looks_like` is true for texts that it would find rows in.
[[nodiscard]] bool looks_like_dispatch(std::string_view text);
[[nodiscard]] BenchmarkResults read_dispatch(std::string_view text, const std::string& where,
                                             const ResultOptions& options);

// The size from which the sweep reaches half of its best bandwidth; nullopt below three sizes, or
// when the smallest size is there already.
[[nodiscard]] std::optional<double> half_bandwidth_of(const BenchmarkResults& results);

// Rows of one file whose bandwidth falls by more than `share` at the next larger size.
struct Dip {
  double bytes = 0.0;
  double busbw_bytes_per_s = 0.0;
  double before_bytes_per_s = 0.0;
};
// A fall of this share at the next larger size is a finding, not noise.
inline constexpr double kNotableDip = 0.15;
[[nodiscard]] std::vector<Dip> find_dips(const BenchmarkResults& results, double share);

}  // namespace moe::topology
