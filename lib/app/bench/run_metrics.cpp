// The metrics of moe-bench run, each with its definition.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/app/bench/run_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/routing/load.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using report::MetricKind;
using Metrics = std::map<std::string, report::Metric>;

constexpr const char* kOneToken = "one output token per request has no gaps";

void add_latency(const PointFigures& figures, const std::string& suffix, Metrics& metrics) {
  const auto sampled = [&](const char* name, const char* unit, const std::vector<double>& samples,
                           const char* how) {
    metrics[name + suffix] = sampled_metric(unit, samples, kOneToken, how);
  };
  sampled("ttft_s", "s", figures.ttft_s,
          "time to first token: from the start of the batch until every request has its first "
          "token; all requests share one prefill, so a repetition is one sample");
  sampled("itl_s", "s", figures.itl_s,
          "inter-token latency: from one decode step's last token to the next one's; every request "
          "gets one token a step, so a step is one sample");
  sampled("tpot_s", "s", figures.tpot_s,
          "time per output token of a request: (E2EL - TTFT) / (output tokens - 1); one sample a "
          "repetition");
  sampled("e2el_s", "s", figures.e2el_s,
          "end-to-end latency: from the start of the batch to the last token; one sample a "
          "repetition");
  sampled("prefill_tokens_per_s", "tokens/s", figures.prefill_tokens_per_s,
          "batch x prompt tokens / TTFT");
  sampled("decode_tokens_per_s", "tokens/s", figures.decode_tokens_per_s,
          "batch x (output tokens - 1) / (E2EL - TTFT)");
  sampled(
      "itl_batch_normalised_s", "s", figures.itl_batch_normalised_s,
      "(E2EL - TTFT) / (batch x (output tokens - 1)), the ITL of arXiv 2508.17467: smaller than "
      "itl_s by the batch");
  sampled("batch_throughput_tokens_per_s", "tokens/s", figures.batch_throughput_tokens_per_s,
          "batch x (input + output tokens) / E2EL, the throughput of arXiv 2508.17467");
}

void add_throughput(const PointFigures& figures, const std::string& suffix, Metrics& metrics) {
  const auto value = [&](const char* name, const char* unit, double number, const char* how) {
    metrics[name + suffix] = value_metric(MetricKind::kMeasured, unit, number, how);
  };
  value("requests_per_s", "requests/s", figures.requests_per_s,
        "requests of all repetitions / their time together");
  value("input_tokens_per_s", "tokens/s", figures.input_tokens_per_s,
        "prompt tokens of all repetitions / their time together, decode included");
  value("output_tokens_per_s", "tokens/s", figures.output_tokens_per_s,
        "generated tokens of all repetitions / their time together, prefill included");
  value("total_tokens_per_s", "tokens/s", figures.total_tokens_per_s,
        "input_tokens_per_s + output_tokens_per_s");
  const char* peak_how =
      "highest output rate over any stretch of at least 1 s that ends with a token";
  metrics["output_tokens_peak_1s_per_s" + suffix] =
      figures.peak_output_tokens_per_s
          ? value_metric(MetricKind::kMeasured, "tokens/s", *figures.peak_output_tokens_per_s,
                         peak_how)
          : absent_metric(MetricKind::kMeasured, "tokens/s", figures.peak_absent_reason, peak_how);
  value("repetitions", "1", static_cast<double>(figures.num_repetitions),
        "complete repetitions of the point");
}

constexpr const char* kNoLimits = "the machine's limits were not measured";

// Against the median of the samples between the repetitions.
void add_ratio(const std::string& name, double achieved, const std::vector<double>& limits,
               const std::string& how, Metrics& metrics) {
  if (limits.empty()) {
    metrics[name] = absent_metric(MetricKind::kMeasured, "1", kNoLimits, how);
    return;
  }
  metrics[name] = value_metric(MetricKind::kMeasured, "1", achieved / stats::median(limits), how);
}

void add_roofline_metrics(const PointFigures& figures, const RunOutcome& outcome,
                          const std::string& suffix, Metrics& metrics) {
  const char* decode_absent = figures.num_decode_steps == 0 ? kOneToken : kNoLimits;
  metrics["roofline_read_bytes_per_s" + suffix] = sampled_metric(
      "bytes/s", figures.read_limits_bytes_per_s, kNoLimits,
      "how fast the engine's threads read the engine's packed weights in order, sampled before the "
      "first repetition and after each");
  const std::string peak = outcome.loads.empty() ? "" : outcome.loads.front().peak_name;
  metrics["roofline_ops_per_s" + suffix] =
      sampled_metric("ops/s", figures.peak_limits_ops_per_s, kNoLimits,
                     fmt::format("how fast the engine's threads multiply and add ({}), sampled "
                                 "beside roofline_read_bytes_per_s",
                                 peak.empty() ? "not measured" : peak));
  const char* ratio_how =
      "share of the roofline: max(bytes of the distinct experts, of the other weights and of the "
      "KV cache that a pass reads / read bandwidth, its operations / peak) over the time taken; "
      "both limits are the mean of the samples before and after the repetition, which is one "
      "sample; above 1 where the weights came from a nearer cache than in the samples, or the "
      "samples were disturbed more than the run; {}";
  metrics["prefill_roofline_ratio" + suffix] =
      sampled_metric("1", figures.prefill_roofline_ratios, kNoLimits,
                     fmt::format(fmt::runtime(ratio_how), "the whole prefill against the TTFT"));
  metrics["decode_roofline_ratio" + suffix] = sampled_metric(
      "1", figures.decode_roofline_ratios, decode_absent,
      fmt::format(fmt::runtime(ratio_how), "the sum over the decode steps against their time"));
}

// Times apart by the state of the cores, where both states occurred.
void add_core_state_metrics(const PointFigures& figures, const std::string& suffix,
                            Metrics& metrics) {
  using engine::CoreState;
  const auto num_samples =
      static_cast<double>(figures.ttft_states.size() + figures.itl_states.size());
  if (num_samples == 0.0) return;
  const auto count = [&](CoreState state) {
    return static_cast<double>(std::ranges::count(figures.ttft_states, state) +
                               std::ranges::count(figures.itl_states, state));
  };
  metrics["core_free_samples_ratio" + suffix] =
      value_metric(MetricKind::kMeasured, "1", count(CoreState::kFree) / num_samples,
                   "share of the prefills and decode steps with all cores free before and after");
  metrics["core_shared_samples_ratio" + suffix] =
      value_metric(MetricKind::kMeasured, "1", count(CoreState::kShared) / num_samples,
                   "share of the prefills and decode steps with a core that somebody else worked "
                   "on before or after");
  metrics["core_probe_s" + suffix] =
      value_metric(MetricKind::kMeasured, "s", figures.probe_s,
                   "time of the probes of the cores in all repetitions, 40 us each and at most one "
                   "a millisecond; the clock of the batch stood still meanwhile");
  if (count(CoreState::kFree) == 0.0 || count(CoreState::kShared) == 0.0) return;
  const auto apart = [&](const char* name, const std::vector<double>& samples,
                         const std::vector<CoreState>& states) {
    const std::vector<double> free = samples_in_state(samples, states, CoreState::kFree);
    metrics[name + suffix] = sampled_metric("s", free, "no sample of this kind had all cores free",
                                            "the samples with all cores free before and after");
  };
  apart("ttft_free_cores_s", figures.ttft_s, figures.ttft_states);
  apart("itl_free_cores_s", figures.itl_s, figures.itl_states);
}

void add_efficiency(const PointFigures& figures, const std::string& suffix, Metrics& metrics) {
  const double prefill_s = std::accumulate(figures.ttft_s.begin(), figures.ttft_s.end(), 0.0);
  const double prefill_rate = static_cast<double>(figures.prefill.flops) / prefill_s;
  metrics["prefill_flops_per_s" + suffix] =
      value_metric(MetricKind::kMeasured, "flop/s", prefill_rate,
                   "floating-point operations of the prefill (multiply and add are two) / TTFT");
  add_ratio("prefill_flops_limit_ratio" + suffix, prefill_rate, figures.peak_limits_ops_per_s,
            "prefill_flops_per_s / median of roofline_ops_per_s", metrics);
  const double decode_s = std::accumulate(figures.itl_s.begin(), figures.itl_s.end(), 0.0);
  const char* read_how =
      "bytes of weights and KV cache that the decode steps read / their time; an expert's weights "
      "count once a step, however many tokens it serves";
  if (decode_s <= 0.0) {
    metrics["decode_read_bytes_per_s" + suffix] =
        absent_metric(MetricKind::kMeasured, "bytes/s", kOneToken, read_how);
    return;
  }
  const auto steps = static_cast<double>(figures.num_decode_steps);
  const double read_rate =
      static_cast<double>(figures.decode.weight_bytes_read + figures.decode.kv_bytes_read) /
      decode_s;
  metrics["decode_read_bytes_per_s" + suffix] =
      value_metric(MetricKind::kMeasured, "bytes/s", read_rate, read_how);
  add_ratio("decode_read_limit_ratio" + suffix, read_rate, figures.read_limits_bytes_per_s,
            "decode_read_bytes_per_s / median of roofline_read_bytes_per_s", metrics);
  metrics["decode_flops_per_s" + suffix] = value_metric(
      MetricKind::kMeasured, "flop/s", static_cast<double>(figures.decode.flops) / decode_s,
      "floating-point operations of the decode steps / their time");
  metrics["decode_expert_bytes_per_step" + suffix] = value_metric(
      MetricKind::kMeasured, "bytes",
      static_cast<double>(figures.decode.expert_weight_bytes_read) / steps,
      "bytes of routed experts' weights that a decode step reads, mean over the steps");
}

// Mean over the MoE layers of the largest expert load over the mean load.
double mean_max_over_mean(const std::vector<std::vector<std::int32_t>>& expert_tokens) {
  double sum = 0.0;
  int count = 0;
  for (const std::vector<std::int32_t>& layer : expert_tokens) {
    const std::vector<std::int64_t> counts(layer.begin(), layer.end());
    const routing::LoadStats load = routing::load_stats(counts);
    if (load.num_routed == 0) continue;
    sum += load.max_over_mean;
    ++count;
  }
  return count == 0 ? 0.0 : sum / count;
}

void add_experts(const PointFigures& figures, const model::ModelConfig& config,
                 const std::string& suffix, Metrics& metrics) {
  if (!config.has_moe_layers()) return;
  const char* load_how =
      "largest tokens of an expert / mean over the experts, over all repetitions, mean over the "
      "MoE "
      "layers; 1 is perfect balance";
  metrics["prefill_expert_load_max_over_mean" + suffix] = value_metric(
      MetricKind::kMeasured, "1", mean_max_over_mean(figures.prefill.expert_tokens), load_how);
  const char* distinct_how =
      "distinct routed experts that a decode step touches in a layer, mean over steps and MoE "
      "layers";
  if (figures.num_decode_steps == 0) {
    metrics["decode_distinct_experts" + suffix] =
        absent_metric(MetricKind::kMeasured, "1", kOneToken, distinct_how);
    return;
  }
  metrics["decode_expert_load_max_over_mean" + suffix] = value_metric(
      MetricKind::kMeasured, "1", mean_max_over_mean(figures.decode.expert_tokens), load_how);
  double sum = 0.0;
  int num_layers = 0;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (!config.layers[layer].is_moe) continue;
    sum += figures.distinct_experts_per_step[layer];
    ++num_layers;
  }
  metrics["decode_distinct_experts" + suffix] =
      value_metric(MetricKind::kMeasured, "1", sum / num_layers, distinct_how);
}

std::string metric_suffix(const BenchPoint& point) {
  return fmt::format(".batch_{}.prompt_tokens_{}.output_tokens_{}", point.batch,
                     point.prompt_tokens, point.output_tokens);
}

void add_point(const PointFigures& figures, const RunOutcome& outcome, const RunFacts& facts,
               const std::string& suffix, Metrics& metrics) {
  add_latency(figures, suffix, metrics);
  add_throughput(figures, suffix, metrics);
  add_efficiency(figures, suffix, metrics);
  add_roofline_metrics(figures, outcome, suffix, metrics);
  add_core_state_metrics(figures, suffix, metrics);
  add_experts(figures, facts.model->config, suffix, metrics);
}

// How the memory that every step reads is backed.
void add_mappings(const LoadOutcome& load, Metrics& metrics) {
  const auto add = [&](const char* name, std::int64_t sysinfo::MappingMemory::*figure,
                       const char* how) {
    metrics[name] = load.mappings ? value_metric(MetricKind::kMeasured, "bytes",
                                                 static_cast<double>((*load.mappings).*figure), how)
                                  : absent_metric(MetricKind::kMeasured, "bytes",
                                                  "/proc/self/smaps has no such mapping", how);
  };
  add("memory_resident_bytes", &sysinfo::MappingMemory::resident_bytes,
      "what is in memory of the mappings that hold the packed weights and the KV cache, from "
      "/proc/self/smaps after the last point; neighbours that the system keeps in one mapping with "
      "them count too");
  add("memory_huge_page_bytes", &sysinfo::MappingMemory::huge_page_bytes,
      "of memory_resident_bytes, what lies in huge pages (AnonHugePages and reserved ones)");
}

void add_whole_run(const RunOutcome& outcome, const RunFacts& facts, Metrics& metrics) {
  const auto modelled = [&](const char* name, const char* unit, double value, const char* how) {
    metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
  };
  modelled("model_experts_count", "1", facts.model->config.moe.num_experts,
           "routed experts of a layer, from config.json");
  modelled("num_ranks", "1", 1.0, "processes that shared the work");
  const auto num_measured = std::count_if(
      outcome.points.begin(), outcome.points.end(),
      [](const PointOutcome& point) { return point.status == PointStatus::kMeasured; });
  metrics["points_measured"] =
      value_metric(MetricKind::kMeasured, "1", static_cast<double>(num_measured),
                   "points of the sweep with at least one repetition");
  if (outcome.loads.empty()) return;
  const LoadOutcome& load = outcome.loads.front();
  modelled("memory_weight_bytes", "bytes", static_cast<double>(load.memory.weight_bytes),
           "packed weights of the loaded model");
  modelled("memory_kv_cache_bytes", "bytes", static_cast<double>(load.memory.kv_cache_bytes),
           "KV cache of the largest batch and the longest context");
  modelled("memory_workspace_bytes", "bytes", static_cast<double>(load.memory.workspace_bytes),
           "activations of one pass");
  add_mappings(load, metrics);
  metrics["load_s"] = value_metric(MetricKind::kMeasured, "s", load.load_s,
                                   "reading the weights and packing them for the kernels, once; "
                                   "file cache as it was");
  if (!facts.model->config.is_moe()) return;
  double covered = 0.0;
  int num_layers = 0;
  for (std::size_t layer = 0; layer < load.warm_up.coverage.size(); ++layer) {
    if (!facts.model->config.layers[layer].is_moe) continue;
    covered += load.warm_up.coverage[layer];
    ++num_layers;
  }
  metrics["warmup_expert_coverage_ratio"] =
      value_metric(MetricKind::kMeasured, "1", num_layers == 0 ? 0.0 : covered / num_layers,
                   "share of all experts of all layers that the warm-up ran at least once");
}

}  // namespace

void add_run_metrics(const RunOutcome& outcome, const RunFacts& facts, report::Report& report) {
  std::vector<const PointFigures*> measured;
  for (const PointOutcome& point : outcome.points) {
    if (point.figures) measured.push_back(&*point.figures);
  }
  add_whole_run(outcome, facts, report.metrics);
  if (measured.empty()) return;
  add_point(*measured.front(), outcome, facts, "", report.metrics);
  if (measured.size() == 1) return;
  for (const PointFigures* figures : measured) {
    add_point(*figures, outcome, facts, metric_suffix(figures->point), report.metrics);
  }
}

}  // namespace moe::app
