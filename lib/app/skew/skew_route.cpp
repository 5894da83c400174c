// moe-skew route: which replica a token should take, batch by batch, against the best possible.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/replica_choice.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using balance::Copy;
using report::MetricKind;

struct RouteArgs {
  TraceArgs trace;
  ClusterArgs cluster;
  std::string plan;
  std::int64_t batch_tokens = 256;
  std::string source = "request";
  OutputOptions output;
  AcceptanceOptions acceptance;
};

// Sums over batches and layers.
struct PolicySums {
  double balancedness = 0.0;  // of batches and layers
  double worst = 1.0;
  double over_bound = 0.0;  // slowest GPU / best possible
  std::int64_t num_copies = 0;
  std::int64_t num_cross_gpu = 0;
  std::int64_t num_cross_node = 0;
};

struct RouteSums {
  std::vector<PolicySums> policies{std::size(balance::kReplicaPolicies)};
  double bound_balancedness = 0.0;
  std::int64_t num_batches = 0;  // batches x layers with load
};

// A batch of tokens, layer by layer.
class BatchReplay {
 public:
  BatchReplay(const balance::Placement& placement, const balance::Cluster& cluster)
      : placement_(&placement), cluster_(&cluster), router_(placement, cluster) {}

  void run(const std::vector<std::vector<Copy>>& layers) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      if (!layers[layer].empty()) run_layer(static_cast<std::int32_t>(layer), layers[layer]);
    }
  }

  [[nodiscard]] const RouteSums& sums() const { return sums_; }

 private:
  void run_layer(std::int32_t layer, const std::vector<Copy>& copies) {
    std::vector<double> counts(static_cast<std::size_t>(placement_->num_experts), 0.0);
    for (const Copy& copy : copies) counts[static_cast<std::size_t>(copy.expert)] += 1.0;
    const double bound = router_.min_max_load(layer, counts);
    const double mean = static_cast<double>(copies.size()) / cluster_->total_speed();
    ++sums_.num_batches;
    sums_.bound_balancedness += mean / bound;
    for (std::size_t i = 0; i < sums_.policies.size(); ++i) {
      const balance::RouteResult result =
          router_.route(balance::kReplicaPolicies[i], layer, copies);
      double slowest = 0.0;
      for (std::size_t gpu = 0; gpu < result.gpu_copies.size(); ++gpu) {
        slowest =
            std::max(slowest, static_cast<double>(result.gpu_copies[gpu]) / cluster_->speed[gpu]);
      }
      PolicySums& policy = sums_.policies[i];
      policy.balancedness += mean / slowest;
      policy.worst = std::min(policy.worst, mean / slowest);
      policy.over_bound += slowest / bound;
      policy.num_copies += result.num_copies;
      policy.num_cross_gpu += result.num_cross_gpu;
      policy.num_cross_node += result.num_cross_node;
    }
  }

  const balance::Placement* placement_;
  const balance::Cluster* cluster_;
  balance::ReplicaRouter router_;
  RouteSums sums_;
};

void add_token(const routing::TokenBlock& block, std::int64_t token, std::int32_t gpu,
               std::uint64_t key, std::vector<std::vector<Copy>>& layers) {
  for (std::int64_t layer = 0; layer < block.num_layers; ++layer) {
    const std::int32_t* ids = block.ids_of(token, layer);
    for (std::int64_t i = 0; i < block.top_k; ++i) {
      if (ids[i] < 0) continue;
      layers[static_cast<std::size_t>(layer)].push_back({ids[i], gpu, key});
    }
  }
}

RouteSums route_all(const RouteArgs& args, routing::RoutingInput& input,
                    const balance::Placement& placement, const balance::Cluster& cluster) {
  BatchReplay replay(placement, cluster);
  std::vector<std::vector<Copy>> layers(static_cast<std::size_t>(placement.num_layers));
  routing::TokenBlock block;
  std::int64_t in_batch = 0;
  std::int64_t num_tokens = 0;
  const std::int64_t num_gpus = cluster.num_gpus();
  while (input.tokens->next(block)) {
    for (std::int64_t token = 0; token < block.num_tokens; ++token, ++num_tokens) {
      const std::size_t row = static_cast<std::size_t>(token);
      const std::int64_t home = args.source == "request" ? block.request[row] : num_tokens;
      const auto gpu = static_cast<std::int32_t>((home % num_gpus + num_gpus) % num_gpus);
      // Keys: the request where there are several, so that a sequence stays together.
      const std::uint64_t key = input.info.has_requests
                                    ? static_cast<std::uint64_t>(block.request[row])
                                    : static_cast<std::uint64_t>(num_tokens);
      add_token(block, token, gpu, key, layers);
      if (++in_batch < args.batch_tokens) continue;
      replay.run(layers);
      for (std::vector<Copy>& copies : layers) copies.clear();
      in_batch = 0;
    }
  }
  replay.run(layers);
  return replay.sums();
}

void add_results(const RouteSums& sums, ReportSession& session) {
  report::Report& report = session.report();
  report::Table table =
      make_table("Replica choice, over batches and layers", {{"policy", ""},
                                                             {"mean_balancedness", "1"},
                                                             {"worst_balancedness", "1"},
                                                             {"slowest_over_bound", "1"},
                                                             {"cross_gpu", "1"},
                                                             {"cross_node", "1"}});
  const double count = static_cast<double>(sums.num_batches);
  for (std::size_t i = 0; i < sums.policies.size(); ++i) {
    const PolicySums& policy = sums.policies[i];
    const double copies = static_cast<double>(policy.num_copies);
    const std::string name = balance::replica_policy_name(balance::kReplicaPolicies[i]);
    table.rows.push_back({name, policy.balancedness / count, policy.worst,
                          policy.over_bound / count,
                          static_cast<double>(policy.num_cross_gpu) / copies,
                          static_cast<double>(policy.num_cross_node) / copies});
    report.metrics["route_balancedness_" + name + "_ratio"] =
        value_metric(MetricKind::kReplayed, "1", policy.balancedness / count,
                     "mean over batches and layers of mean / slowest GPU");
  }
  table.rows.push_back({std::string("lower bound (linear program)"),
                        sums.bound_balancedness / count, report::Cell(), 1.0, report::Cell(),
                        report::Cell()});
  report.tables["route"] = table;
  report.metrics["route_balancedness_bound_ratio"] = value_metric(
      MetricKind::kModelled, "1", sums.bound_balancedness / count,
      "the same when copies of an expert may be split over its replicas in any shares: no choice "
      "of replicas does better");
  report.highlights = {"route_balancedness_bound_ratio", "route_balancedness_even_ratio",
                       "route_balancedness_least_loaded_ratio"};
}

int run_route(const RouteArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  if (args.trace.traces.size() != 1) throw Error(ErrorCode::kUsage, "expected one TRACE to route");
  const std::string& path = args.trace.traces.front();
  const std::vector<LoadedTrace> traces = {load_trace(path, args.trace)};
  const routing::InputInfo& info = traces.front().counts.info;
  routing::RoutingInput input = routing::open_input(path, open_options(args.trace));
  if (input.tokens == nullptr) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} holds counts alone; replica choice needs the experts of each "
                            "token",
                            path, routing::format_name(input.info.format)));
  }
  // Layers without a token have no place in the plan, but stand in the blocks: the same rows.
  const balance::Placement placement = [&] {
    if (!args.plan.empty()) return load_plan(args.plan, args.cluster.num_gpus, input.info);
    const balance::Cluster linear = make_cluster(args.cluster, info.num_experts);
    return balance::linear_placement(linear, static_cast<std::int32_t>(input.info.num_layers()),
                                     info.num_experts);
  }();
  const balance::Cluster cluster = cluster_of(placement, args.cluster);
  describe_traces("route", traces, args.trace, session);
  describe_cluster(cluster, session.report());
  session.report().settings["plan"] = args.plan;
  session.report().settings["batch_tokens"] = args.batch_tokens;
  session.report().settings["source"] = args.source;
  const RouteSums sums = route_all(args, input, placement, cluster);
  if (sums.num_batches == 0) session.invalidate("not one token was routed");
  if (sums.num_batches > 0) add_results(sums, session);
  session.add_finding(
      "route.sources", report::Severity::kInfo,
      fmt::format("where a token's own GPU is, is assumed: {} modulo GPUs", args.source), "");
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_route_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<RouteArgs>();
  Options& options =
      line.add_command("route", "Compares ways to choose a replica, against the best possible",
                       [args, &context] { return run_route(*args, context); });
  options.positionals("TRACE", args->trace.traces, "Recorded routing, token by token");
  add_trace_options(options, args->trace);
  add_cluster_options(options, args->cluster);
  options.group("Routing");
  options.text("--plan", "FILE", args->plan, "The placement; without it the linear one");
  options.integer("--batch", args->batch_tokens, {1, 1 << 24}, "Tokens that are routed together");
  options.choice("--source", {"request", "token"}, args->source,
                 "What a token's own GPU follows from: its request's number, or its own");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
}

}  // namespace moe::app
