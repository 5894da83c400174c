#pragma once

// What moe-a2a run is asked, what it does at every rank, and what it makes of it. The parts stand
// in a2a_run_options.cpp, a2a_run_measure.cpp, a2a_run_report.cpp and a2a_run_findings.cpp.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/a2a/a2a_gate.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/report_session.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/comm/backend.hpp"
#include "lib/comm/faults.hpp"
#include "lib/comm/measure.hpp"
#include "lib/comm/moe_traffic.hpp"
#include "lib/comm/pairs.hpp"
#include "lib/comm/pipeline.hpp"
#include "lib/comm/second_pass.hpp"

namespace moe::app {

struct RunArgs {
  std::string backend = "auto";
  std::int64_t ranks = 0;
  double time_limit_s = 30.0;
  std::string sizes = "1KiB..16MiB";
  std::string pattern = "uniform";
  std::string matrix;
  std::string trace;
  std::int64_t trace_layer = 0;
  double zipf_s = 1.0;
  std::int64_t iterations = 0;
  std::int64_t warm_up = 5;
  double size_time_s = 0.3;
  std::string check = "size";
  std::int64_t seed = 1;
  bool has_no_pairs = false;
  std::int64_t pair_bytes = 1 << 20;
  double min_pair_share = 0.0;
  bool registers_buffers = false;
  bool uses_own_all_to_all = false;
  std::int64_t tokens = 0;
  std::int64_t hidden = 7168;
  std::int64_t top_k = 8;
  std::int64_t experts = 256;
  std::string dispatch_dtype = "fp8";
  std::string combine_dtype = "bfloat16";
  std::string moe_schedule = "both";
  std::int64_t ranks_per_node = 0;
  double compute_s = 0.0;
  std::vector<std::int64_t> chunks = {1, 2, 4, 8};
  std::string inject;
  ClusterArgs cluster;
  GateArgs gate;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

void add_run_options(Options& options, RunArgs& args);

// The arguments, checked; the same at every rank.
struct RunPlan {
  std::vector<std::int64_t> sizes;  // as asked, bytes of one rank
  comm::MeasureOptions measure;
  comm::Fault fault;
  double dispatch_element_bytes = 0.0;
  double combine_element_bytes = 0.0;
};
// Throws Error(kUsage).
[[nodiscard]] RunPlan plan_run(const RunArgs& args);

// "1KiB..1GiB" doubles; "4KiB,1MiB" lists.
[[nodiscard]] std::vector<std::int64_t> parse_size_range(const std::string& text,
                                                         const std::string& option);

struct SizeOutcome {
  comm::ExchangeResult result;
  comm::TrafficSums sums;
  double time_s = 0.0;             // median over the iterations of the slowest rank's time
  double busbw_bytes_per_s = 0.0;  // of the rank that moves most, its own part left out
};

struct MoeOutcome {
  std::string phase;     // "dispatch", "combine"
  std::string schedule;  // "flat", "node_deduplicated"
  std::int64_t logical_bytes = 0;
  comm::TrafficSums sums;
  std::vector<double> iteration_s;  // all stages together
  std::vector<comm::WrongData> wrong;
};

// Below this share of its like a pair is a finding even where no gate asks.
inline constexpr double kPairShare = 0.7;

// What rank 0 knows, filled as it comes: what is there when a rank is lost stays.
struct RunOutcome {
  std::vector<comm::RankPlace> places;
  std::vector<int> nodes;      // of each rank, by host
  std::vector<int> moe_nodes;  // the same, or as --ranks-per-node says
  std::vector<SizeOutcome> sizes;
  std::vector<std::int64_t> sizes_too_small;
  std::vector<std::int64_t> sizes_too_large;  // for the memory of a host
  std::vector<comm::PairFigure> pairs;
  std::optional<comm::SecondPass> second_pass;
  std::vector<MoeOutcome> moe;
  std::vector<comm::PipelineResult> overlap;
  std::optional<comm::GatherScatterResult> gather_scatter;
  std::optional<std::int64_t> trace_tokens;  // distinct ones, when there were fewer than needed
  bool moves_data = true;
  bool is_partial = false;
  std::optional<comm::StuckError> stuck;
};

// What rank 0 has beside the others.
struct RankZero {
  // Reads what the report needs; before anything is measured, so that an hour is not lost to a
  // wrong path. What it throws is thrown at every rank.
  std::function<void()> prepare;
  Progress* progress = nullptr;
};

// What one rank does. `outcome` is filled at rank 0 only; `zero` is null elsewhere.
void run_rank(comm::Communicator& communicator, const RunArgs& args, const RunPlan& plan,
              const RankZero* zero, RunOutcome& outcome);

// Metrics and tables.
void report_run(const RunArgs& args, const RunOutcome& outcome, const GateContext& machine,
                report::Report& report);
// Findings; the exit code that follows from data, lost ranks and pairs.
[[nodiscard]] int judge_run(const RunArgs& args, const RunOutcome& outcome, ReportSession& session);
// As the gate reads them.
[[nodiscard]] topology::BenchmarkResults results_of(const RunOutcome& outcome);

// "rank 3 (host ns3, CPUs 0-1, NIC eth0)".
[[nodiscard]] std::string rank_name(const RunOutcome& outcome, int rank);
// The rank with the largest median time; -1 without figures.
[[nodiscard]] int worst_rank(const comm::ExchangeResult& result);

}  // namespace moe::app
