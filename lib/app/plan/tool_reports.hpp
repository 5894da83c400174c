#pragma once

// What a plan takes from reports of the other tools. The keys that are read stand here and nowhere
// else.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/collective_time.hpp"
#include "lib/planner/expert_hits.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// moe-skew: table of selections per expert (`inspect`), and mean over maximum load of the ranks
// under the placement it proposes (`plan`).
inline constexpr const char* kSkewTable = "experts";
inline constexpr const char* kSkewCountColumn = "assignments";
// moe-bench: the same of the tokens it ran.
inline constexpr const char* kBenchTable = "routing_expert_load";
inline constexpr const char* kBenchCountColumn = "tokens";
// Both have a row for each layer and expert.
inline constexpr const char* kLayerColumn = "layer";
inline constexpr const char* kExpertColumn = "expert";
inline constexpr const char* kSkewBalancedness = "placement_gpu_balancedness_ratio";
// moe-a2a: bus bandwidth at the largest size and over how many nodes it was measured.
inline constexpr const char* kA2aBusBandwidth = "a2a_busbw_bytes_per_s";
inline constexpr const char* kA2aNodes = "num_nodes";

// Shares sorted from the most to the least popular, put into an order in which any power of two of
// equal blocks gets a fair deal (bit reversal): what a placement that looks at load does at least.
[[nodiscard]] std::vector<double> deal_popularity(const std::vector<double>& sorted);

// Popularity of the experts from a report of moe-skew or moe-bench, dealt as above: the mean over
// layers of the sorted shares, for what counts is how uneven a layer is, not which expert is hot in
// it. Throws Error(kInput) when the report is neither, not valid, or holds no such table.
[[nodiscard]] std::vector<double> popularity_from_report(const report::Report& report,
                                                         const std::string& where);

// Experts of the widest layer.
[[nodiscard]] std::int64_t num_experts_of(const model::Architecture& architecture);
// Throws Error(kInput) naming `where` when the popularity is not of as many experts.
void require_popularity_of(const model::Architecture& architecture,
                           const std::vector<double>& popularity, const std::string& where);

struct SkewEvidence {
  planner::RoutingSkew skew;
  std::vector<std::string> notes;  // what was read, one line each
};

// Throws Error(kInput) when the report is not of moe-skew, not valid, or holds none of these.
[[nodiscard]] SkewEvidence skew_from_report(const report::Report& report, const std::string& where);
[[nodiscard]] SkewEvidence read_skew_report(const std::string& path);

struct LinkEvidence {
  double bus_bytes_per_s = 0.0;
  bool is_between_nodes = false;
  report::MetricKind kind = report::MetricKind::kMeasured;
  std::string note;
};

[[nodiscard]] LinkEvidence links_from_report(const report::Report& report,
                                             const std::string& where);
[[nodiscard]] LinkEvidence read_a2a_report(const std::string& path);

// Puts the measured rate in the place of the data sheet's or the assumed one.
void apply(const LinkEvidence& links, planner::Accelerator& gpu, planner::ScaleOut& network);

}  // namespace moe::app
