// moe-skew cache: what happens when only some experts are resident.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/cache_replay.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using report::Cell;
using report::MetricKind;

struct CacheArgs {
  TraceArgs trace;
  std::vector<std::string> train;
  std::vector<std::int64_t> slots;
  std::string policy = "lru";
  std::string order = "token";
  std::int64_t num_guesses = 0;
  std::int64_t library = 64;
  std::int64_t expert_bytes = 0;
  double link_bytes_per_s = 25e9;
  double latency_s = 10e-6;
  double layer_s = 0.0;
  std::optional<double> low_watermark;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

constexpr const char* kDemand[] = {"lru", "lfu", "static", "belady"};

bool is_prefetch(const std::string& policy) {
  return policy == "cooccurrence" || policy == "activation";
}

TokenSequence read_tokens(const std::string& path, const TraceArgs& args) {
  routing::RoutingInput input = routing::open_input(path, open_options(args));
  if (input.tokens == nullptr) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} holds counts alone; cache hits need the experts of each token",
                            path, routing::format_name(input.info.format)));
  }
  return collect_tokens(input);
}

std::vector<std::int64_t> slots_of(const CacheArgs& args, std::int32_t num_experts) {
  std::vector<std::int64_t> slots = args.slots;
  if (slots.empty()) {
    for (const std::int64_t part : {8, 4, 2}) {
      slots.push_back(std::max<std::int64_t>(1, num_experts / part));
    }
    slots.push_back(std::max<std::int64_t>(1, 3 * num_experts / 4));
  }
  for (const std::int64_t count : slots) {
    if (count <= num_experts) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("--slots {}: a layer has {} experts", count, num_experts));
  }
  return slots;
}

ResidencySpec residency_spec(const CacheArgs& args, std::int64_t slots, const std::string& policy,
                             std::int32_t top_k) {
  ResidencySpec spec;
  spec.num_slots = static_cast<std::int32_t>(slots);
  spec.prefetch = policy == "cooccurrence" ? Prefetch::kCooccurrence
                  : policy == "activation" ? Prefetch::kActivation
                                           : Prefetch::kNone;
  spec.num_guesses = static_cast<std::int32_t>(args.num_guesses > 0 ? args.num_guesses : top_k);
  spec.library_size = static_cast<std::int32_t>(args.library);
  spec.low_watermark = args.low_watermark.value_or(1.0);
  spec.by_step = args.order == "step";
  // Without sizes the replay still runs, in units of its own: bytes and times are then not shown.
  spec.transfer = {
      .expert_bytes = args.expert_bytes > 0 ? static_cast<double>(args.expert_bytes) : 1.0,
      .link_bytes_per_s = args.link_bytes_per_s,
      .latency_s = args.latency_s,
      .layer_s = args.layer_s};
  return spec;
}

report::Table demand_table() {
  return make_table("Demand loading, one cache a layer", {{"policy", ""},
                                                          {"slots", "1"},
                                                          {"hit_ratio", "1"},
                                                          {"miss_ratio", "1"},
                                                          {"first_touch", "1"},
                                                          {"capacity_misses", "1"},
                                                          {"accesses", "1"},
                                                          {"loaded_bytes", "bytes"}});
}

void add_demand_row(const CacheArgs& args, const std::string& policy, std::int64_t slots,
                    const tiering::CacheCounts& counts, report::Table& table) {
  const double misses = counts.miss_ratio().value_or(0.0);
  table.rows.push_back(
      {policy, count_cell(slots), 1.0 - misses, misses, count_cell(counts.num_first_touch),
       count_cell(counts.num_capacity), count_cell(counts.num_accesses),
       args.expert_bytes > 0
           ? Cell(static_cast<double>(counts.num_misses()) * static_cast<double>(args.expert_bytes))
           : Cell()});
}

report::Table timed_table() {
  return make_table("With time: least recently used, experts over one link",
                    {{"prefetch", ""},
                     {"slots", "1"},
                     {"miss_ratio", "1"},
                     {"late_ratio", "1"},
                     {"precision", "1"},
                     {"recall", "1"},
                     {"demand_bytes", "bytes"},
                     {"prefetch_bytes", "bytes"},
                     {"compute_s", "s"},
                     {"exposed_s", "s"},
                     {"exposed_ratio", "1"},
                     {"overfull_layers", "1"},
                     {"reloads_in_step", "1"},
                     {"evictions", "1"}});
}

void add_timed_row(const CacheArgs& args, const std::string& prefetch, std::int64_t slots,
                   const tiering::ResidencyResult& result, report::Table& table) {
  const double accesses =
      static_cast<double>(std::max<std::int64_t>(1, result.counts.num_accesses));
  const bool has_bytes = args.expert_bytes > 0;
  const bool has_time = has_bytes && args.layer_s > 0.0;
  const auto shown = [](bool has, double value) { return has ? Cell(value) : Cell(); };
  const bool guesses = result.prefetch.num_guesses > 0;
  table.rows.push_back(
      {prefetch, count_cell(slots), result.counts.miss_ratio().value_or(0.0),
       shown(has_time, static_cast<double>(result.num_late) / accesses),
       shown(guesses, result.prefetch.precision()), shown(guesses, result.prefetch.recall()),
       shown(has_bytes, result.demand_bytes), shown(has_bytes, result.prefetch_bytes),
       shown(has_time, result.compute_s), shown(has_time, result.exposed_s),
       shown(has_time, result.exposed_ratio()), count_cell(result.num_overfull),
       count_cell(result.num_step_reloads), count_cell(result.num_evictions)});
}

// Metrics of the policy asked for at the first cache size.
struct Chosen {
  std::optional<double> miss_ratio;
  std::optional<double> bound;
  std::optional<tiering::ResidencyResult> timed;
  std::int64_t slots = 0;
};

void add_metrics(const CacheArgs& args, const Chosen& chosen, std::int32_t num_experts,
                 ReportSession& session) {
  auto& metrics = session.report().metrics;
  const auto ratio = [&](const char* name, const std::optional<double>& value, const char* how,
                         const char* reason) {
    metrics[name] = value ? value_metric(MetricKind::kReplayed, "1", *value, how)
                          : absent_metric(MetricKind::kReplayed, "1", reason, how);
  };
  ratio("cold_miss_ratio", chosen.miss_ratio,
        "accesses of experts that were not resident / accesses, the policy asked for",
        "nothing was accessed");
  ratio("cold_miss_bound_ratio", chosen.bound,
        "the same by Belady's rule, which knows the future: no demand loading has fewer",
        "nothing was accessed");
  const bool is_tiered = chosen.slots < num_experts;
  metrics["expert_tiering_enabled"] = value_metric(
      MetricKind::kModelled, "1", is_tiered ? 1.0 : 0.0, "1 when fewer slots than experts");
  metrics["prefetch_enabled"] =
      value_metric(MetricKind::kModelled, "1", is_prefetch(args.policy) ? 1.0 : 0.0,
                   "1 when the policy asked for loads ahead");
  const bool has_time = chosen.timed && args.expert_bytes > 0 && args.layer_s > 0.0;
  metrics["prefetch_exposed_ratio"] =
      has_time ? value_metric(MetricKind::kModelled, "1", chosen.timed->exposed_ratio(),
                              "time waited for experts / (compute + waited), by the transfer model")
               : absent_metric(MetricKind::kModelled, "1", "needs --expert-bytes and --layer-time",
                               "time waited for experts / (compute + waited)");
  session.report().highlights = {"cold_miss_ratio", "cold_miss_bound_ratio",
                                 "prefetch_exposed_ratio"};
  if (chosen.bound && *chosen.bound > 0.05) {
    session.add_finding(
        "cache.bound_above_limit", report::Severity::kInfo,
        fmt::format("with {} of {} experts resident even Belady's rule misses {:.1f} %: no policy "
                    "that loads on demand stays below 5 %",
                    chosen.slots, num_experts, 100.0 * *chosen.bound),
        "more slots, or loading ahead");
  }
  if (chosen.timed && chosen.timed->num_overfull > 0) {
    session.add_finding(
        "cache.working_set", report::Severity::kWarning,
        fmt::format("{} times a layer of one step needed more experts than there are slots; {} "
                    "were loaded again in the step that evicted them",
                    chosen.timed->num_overfull, chosen.timed->num_step_reloads),
        "more slots a layer, or smaller batches");
  }
}

// The traces of --train as one, where there are any.
std::optional<TokenSequence> read_training(const CacheArgs& args, const std::string& path,
                                           const TokenSequence& tokens) {
  std::optional<TokenSequence> train;
  for (const std::string& file : args.train) {
    TokenSequence more = read_tokens(file, args.trace);
    if (more.num_layers != tokens.num_layers || more.num_experts != tokens.num_experts) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: other layers or experts than {}", file, path));
    }
    if (train) {
      train->append(more);
    } else {
      train = std::move(more);
    }
  }
  return train;
}

int run_cache(const CacheArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  if (args.trace.traces.size() != 1) throw Error(ErrorCode::kUsage, "expected one TRACE to replay");
  const std::string& path = args.trace.traces.front();
  const std::vector<LoadedTrace> traces = {load_trace(path, args.trace)};
  const TokenSequence tokens = read_tokens(path, args.trace);
  const std::optional<TokenSequence> train = read_training(args, path, tokens);
  const bool trains_elsewhere = train.has_value();
  const TokenSequence& profile = train ? *train : tokens;
  const std::vector<std::int64_t> slots = slots_of(args, tokens.num_experts);

  report::Report& report = session.report();
  describe_traces("cache", traces, args.trace, session);
  report.settings["slots"] = slots;
  report.settings["policy"] = args.policy;
  report.settings["train"] = args.train;
  report.settings["order"] = args.order;
  report.settings["expert_bytes"] = args.expert_bytes;
  report.settings["link_bytes_per_s"] = args.link_bytes_per_s;
  report.settings["link_latency_s"] = args.latency_s;
  report.settings["layer_s"] = args.layer_s;
  report.settings["low_watermark"] = args.low_watermark.value_or(1.0);

  report::Table demand = demand_table();
  report::Table timed = timed_table();
  Chosen chosen;
  for (const std::int64_t count : slots) {
    const bool is_first = count == slots.front();
    for (const char* policy : kDemand) {
      const tiering::CacheCounts counts = replay_demand(
          tokens, profile, policy, static_cast<std::int32_t>(count), args.order == "step");
      add_demand_row(args, policy, count, counts, demand);
      if (!is_first) continue;
      chosen.slots = count;
      if (policy == args.policy) chosen.miss_ratio = counts.miss_ratio();
      if (std::string(policy) == "belady") chosen.bound = counts.miss_ratio();
    }
    for (const char* prefetch : {"none", "cooccurrence", "activation"}) {
      const tiering::ResidencyResult result =
          replay_residency(tokens, profile, residency_spec(args, count, prefetch, tokens.top_k));
      add_timed_row(args, prefetch, count, result, timed);
      const bool is_asked =
          is_prefetch(args.policy) ? prefetch == args.policy : std::string(prefetch) == "none";
      if (!is_first || !is_asked) continue;
      chosen.timed = result;
      if (is_prefetch(args.policy)) chosen.miss_ratio = result.counts.miss_ratio();
    }
  }
  report.tables["demand"] = demand;
  report.tables["timed"] = timed;
  report.charts.push_back(
      {"Hit ratio by slots", report::ChartKind::kLine, "demand", "slots", {"hit_ratio"}, "policy"});
  add_metrics(args, chosen, tokens.num_experts, session);
  if (!trains_elsewhere) {
    session.add_finding("cache.in_sample", report::Severity::kWarning,
                        "static sets and guesses are fitted to the trace that they are judged by",
                        "--train OTHER: recall falls from 0.5 to 0.26 on another domain");
  }
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_cache_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CacheArgs>();
  Options& options = line.add_command(
      "cache", "Replays residency: hits, cold misses, prefetch and exposed transfer time",
      [args, &context] { return run_cache(*args, context); });
  options.positionals("TRACE", args->trace.traces, "Recorded routing, token by token");
  add_trace_options(options, args->trace);
  options.group("Cache");
  options.integers("--slots", args->slots, {1, 1 << 16},
                   "Experts of a layer that are resident; the first is what metrics are about; "
                   "without it an eighth, a quarter, half and three quarters of the experts");
  options.choice("--policy", {"lru", "lfu", "static", "belady", "cooccurrence", "activation"},
                 args->policy, "What metrics and verdict are about; the tables have all");
  options.texts("--train", "TRACE", args->train,
                "Trace that static sets and guesses are made from");
  options.choice("--order", {"token", "step"}, args->order,
                 "token: one sequence at a time; step: each expert once a forward pass");
  options.integer("--guesses", args->num_guesses, {0, 1 << 16},
                  "Experts loaded ahead for the next layer", "top-k");
  options.integer("--library", args->library, {1, 1 << 16},
                  "Sequences that the activation matrices keep");
  options.group("Transfer");
  options.bytes("--expert-bytes", args->expert_bytes, "Weights of one expert of one layer",
                "not known");
  options.real("--link-bytes-per-s", args->link_bytes_per_s, {1.0, 1e15},
               "Rate of the link that experts come over");
  options.duration("--link-latency", args->latency_s, "Of one transfer");
  options.duration("--layer-time", args->layer_s, "Computing of one layer of one step",
                   "not known");
  options.ratio("--low-watermark", args->low_watermark,
                "Share of the slots that a full cache is emptied down to", "one expert at a time");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-skew cache trace.npy --experts 64 --slots 16,32 --train other.npy",
                  "hits of every policy, guesses from another trace");
}

}  // namespace moe::app
