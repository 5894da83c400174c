#pragma once

// What the commands about placements share: which traces, which cluster, which plan.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/balance/loads.hpp"
#include "lib/balance/placement.hpp"
#include "lib/balance/plan_text.hpp"
#include "lib/routing/expert_counts.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/sanity.hpp"
#include "lib/routing/windows.hpp"

namespace moe::app {

// How to read the traces.
struct TraceArgs {
  std::vector<std::string> traces;
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t num_shared_experts = 0;
  std::int64_t first_layer = 0;
  bool skips_profiling = false;
};
void add_trace_options(Options& options, TraceArgs& args);
[[nodiscard]] routing::OpenOptions open_options(const TraceArgs& args);

// GPUs, nodes, slots.
struct ClusterArgs {
  std::int64_t num_gpus = 0;
  std::int64_t num_nodes = 1;
  std::int64_t num_slots = 0;
  std::int64_t num_redundant = 0;
  std::vector<std::int64_t> gpu_slots;
  std::string speeds;
};
void add_cluster_options(Options& options, ClusterArgs& args);
// Throws Error(kUsage).
[[nodiscard]] balance::Cluster make_cluster(const ClusterArgs& args, std::int64_t num_experts);
// The cluster that a plan was made for; nodes and speeds from the options.
[[nodiscard]] balance::Cluster cluster_of(const balance::Placement& placement,
                                          const ClusterArgs& args);

// A trace as counts by window and as loads over all of it.
struct LoadedTrace {
  std::string path;
  routing::ExpertCounts counts;
  routing::InputCheck check;
  balance::LoadMatrix loads;

  [[nodiscard]] const std::string& name() const { return counts.info.name; }
};
// Throws Error(kInput) when the input is not what it seems to be (lib/routing/sanity.hpp).
[[nodiscard]] LoadedTrace load_trace(const std::string& path, const TraceArgs& args,
                                     const routing::WindowSpec& window = {});
// Several of one model: the same experts and the layers of the first. Throws Error(kInput).
[[nodiscard]] std::vector<LoadedTrace> load_traces(const TraceArgs& args,
                                                   const std::vector<std::string>& paths,
                                                   const routing::WindowSpec& window = {});

// A plan file, cut to the layers of the trace.
[[nodiscard]] balance::Placement load_plan(const std::string& path, std::int64_t num_gpus,
                                           const routing::InputInfo& info);

// Routed tokens where the input tells them, or top_k is given; absent otherwise.
[[nodiscard]] std::optional<double> routed_tokens(const routing::ExpertCounts& counts,
                                                  const TraceArgs& args);

// Subject, settings and sanity of traces, and the metrics that every checklist item about routing
// asks for.
void describe_traces(const std::string& command, const std::vector<LoadedTrace>& traces,
                     const TraceArgs& args, ReportSession& session);
void describe_cluster(const balance::Cluster& cluster, report::Report& report);

}  // namespace moe::app
