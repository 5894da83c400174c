// What a reader of a run's figures has to know, and what makes them void.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/run_report.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::app {
namespace {

using report::Severity;

void add_conditions(const RunFacts& facts, ReportSession& session) {
  session.add_finding("run.fixed_output_lengths", Severity::kInfo,
                      "output lengths are fixed: end-of-sequence tokens are ignored", "");
  session.add_finding(
      "run.no_chat_template", Severity::kInfo,
      fmt::format("prompts: {}; no chat template is applied", facts.prompts->description()), "");
  const std::vector<std::string> unused = unused_generation_settings(facts.directory);
  if (!unused.empty()) {
    session.add_finding("run.generation_config_not_used", Severity::kInfo,
                        fmt::format("generation_config.json has {}, which a measurement does not "
                                    "use",
                                    fmt::join(unused, ", ")),
                        "Give --temperature to sample");
  }
  for (const std::vector<std::string>* warnings :
       {&facts.model->config.warnings, &facts.model->warnings}) {
    for (const std::string& warning : *warnings) {
      session.add_finding("checkpoint.warning", Severity::kWarning, warning, "");
    }
  }
  if (!facts.args->dump_routing.empty()) {
    session.add_finding("run.times_include_trace", Severity::kInfo,
                        "the times include the recording of the routing trace",
                        "Run without --dump-routing for figures to compare");
  }
}

void add_machine(const RunFacts& facts, ReportSession& session) {
  const sysinfo::HostInfo host = sysinfo::read_host();
  const auto threads = static_cast<double>(facts.options->num_threads);
  const auto usable = static_cast<double>(num_usable_threads());
  if (threads > usable) {
    session.add_finding(
        "machine.too_many_threads", Severity::kWarning,
        fmt::format("{} threads run on {} that the process may use", threads, usable),
        "Use at most as many --threads as there are");
  }
  // Read after the run, whose own threads are in the one-minute figure.
  if (host.load_average && (*host.load_average)[0] > threads + 0.5 * usable) {
    session.add_finding("machine.busy", Severity::kWarning,
                        fmt::format("the load average is {:.1f} with {} threads of ours: other "
                                    "work shares the machine",
                                    (*host.load_average)[0], threads),
                        "Run on an idle machine, or trust medians and minima only");
  }
}

void add_placement(const RunOutcome& outcome, ReportSession& session) {
  if (outcome.loads.empty()) return;
  const std::string& trouble = outcome.loads.front().placement.trouble;
  if (trouble.empty()) return;
  session.add_finding("machine.numa_not_placed", Severity::kWarning, trouble,
                      "Containers refuse this without the capability SYS_NICE; grant it, or start "
                      "the run under numactl --interleave=all");
}

// Samples with a core that somebody else worked on are slower by up to a half and more.
void add_core_findings(const RunOutcome& outcome, ReportSession& session) {
  constexpr double kLargeShare = 0.25;
  std::int64_t num_shared = 0;
  std::int64_t num_unknown = 0;
  std::int64_t num_samples = 0;
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    for (const auto* states : {&point.figures->ttft_states, &point.figures->itl_states}) {
      num_shared += std::ranges::count(*states, engine::CoreState::kShared);
      num_unknown += std::ranges::count(*states, engine::CoreState::kUnknown);
      num_samples += std::ssize(*states);
    }
  }
  if (num_samples == 0) return;
  const auto share = [num_samples](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(num_samples);
  };
  json::Json evidence;
  evidence["shared_samples_ratio"] = share(num_shared);
  evidence["unknown_samples_ratio"] = share(num_unknown);
  evidence["rule"] = outcome.cores.describe();
  if (share(num_shared) >= kLargeShare) {
    session.add_finding(
        "machine.core_shared", Severity::kWarning,
        fmt::format("in {:.0f} % of the samples a core was not ours alone: something else ran on "
                    "it, or on its other hyperthread",
                    share(num_shared) * 100.0),
        "Compare only figures of free cores (table core_states), or runs taken by turns", evidence);
  } else if (share(num_unknown) > 0.5) {
    session.add_finding(
        "machine.core_state_unknown", Severity::kInfo,
        "whether the cores were ours alone is not known: " + outcome.cores.describe(), "",
        evidence);
  }
}

void add_warm_up(const RunOutcome& outcome, const RunFacts& facts, ReportSession& session) {
  if (!facts.model->config.is_moe() || outcome.loads.empty()) return;
  const engine::WarmUpResult& warm_up = outcome.loads.front().warm_up;
  if (warm_up.is_complete || warm_up.coverage.empty()) return;
  const double least = *std::min_element(warm_up.coverage.begin(), warm_up.coverage.end());
  json::Json evidence;
  evidence["least_layer_coverage_ratio"] = least;
  evidence["warmup_tokens"] = warm_up.num_tokens;
  session.add_finding(
      "warmup.incomplete", Severity::kWarning,
      fmt::format("the warm-up of {} tokens did not reach every expert: {:.0f} % in "
                  "the least covered layer",
                  warm_up.num_tokens, least * 100.0),
      "The first use of an expert may fall into a measured repetition; give more "
      "--warmup",
      evidence);
}

void add_routing(const RunOutcome& outcome, const RunFacts& facts, ReportSession& session) {
  const model::ModelConfig& config = facts.model->config;
  if (!config.has_moe_layers()) return;
  const std::int32_t top_k =
      facts.options->top_k_override > 0 ? facts.options->top_k_override : config.moe.top_k;
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures || point.point.batch < 2 || point.figures->num_decode_steps == 0) continue;
    double distinct = 0.0;
    int num_layers = 0;
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      if (!config.layers[layer].is_moe) continue;
      distinct += point.figures->distinct_experts_per_step[layer];
      ++num_layers;
    }
    distinct /= num_layers;
    const double uniform =
        expected_distinct_experts(config.moe.num_experts, top_k, point.point.batch);
    // Close to what one token alone touches, although many could touch far more.
    const bool is_collapsed = distinct < 1.25 * top_k && uniform > 1.75 * top_k;
    if (!point.has_identical_prompts && !is_collapsed) continue;
    json::Json evidence;
    evidence["point"] = point_label(point.point);
    evidence["distinct_experts_per_layer_and_step"] = distinct;
    evidence["with_uniform_routing"] = uniform;
    const std::string seen = fmt::format(
        "{}: a decode step touches {:.1f} experts a layer, uniform routing would touch {:.1f}",
        point_label(point.point), distinct, uniform);
    if (point.has_identical_prompts) {
      session.add_finding("prompts.identical", Severity::kWarning,
                          fmt::format("requests of a batch have the same prompt, which collapses "
                                      "routing; {}",
                                      seen),
                          "Use --prompts auto, random or a text long enough for the batch",
                          evidence);
    } else {
      session.add_finding("routing.collapsed", Severity::kWarning, seen,
                          "Few experts serve the whole batch: more varied prompts measure a more "
                          "usual load",
                          evidence);
    }
  }
}

void add_precision(const RunOutcome& outcome, const RunFacts& facts, ReportSession& session) {
  std::vector<std::string> noisy;
  bool repeats_text = false;
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    if (facts.args->until_ci && !point.stop.target_met) noisy.push_back(point_label(point.point));
    repeats_text =
        repeats_text || facts.prompts->repeats_text(point.point.batch, point.point.prompt_tokens);
  }
  if (!noisy.empty()) {
    session.add_finding("run.not_converged", Severity::kWarning,
                        fmt::format("the latency's interval is wider than --until-ci in {}",
                                    fmt::join(noisy, ", ")),
                        "Give more --max-time, or find what disturbs the machine");
  }
  if (repeats_text) {
    session.add_finding("prompts.text_repeats", Severity::kInfo,
                        "the text is shorter than all prompts together: requests share parts of it",
                        "Give a longer text with --prompts FILE");
  }
}

}  // namespace

void add_run_findings(const RunOutcome& outcome, const RunFacts& facts, ReportSession& session) {
  add_conditions(facts, session);
  add_machine(facts, session);
  add_placement(outcome, session);
  add_core_findings(outcome, session);
  add_warm_up(outcome, facts, session);
  add_routing(outcome, facts, session);
  add_precision(outcome, facts, session);
  std::size_t num_measured = 0;
  for (const PointOutcome& point : outcome.points) {
    if (point.status == PointStatus::kFailed) {
      session.add_finding("run.point_failed", Severity::kError,
                          fmt::format("{}: {}", point_label(point.point), point.reason),
                          "Use a smaller batch or shorter prompts");
    }
    if (!point.figures) continue;
    ++num_measured;
    for (const std::string& violation : point.figures->violations) {
      session.add_finding("run.implausible", Severity::kError,
                          fmt::format("{}: {}", point_label(point.point), violation),
                          "The figures of this point must not be used; please report this");
      session.invalidate(fmt::format("{}: {}", point_label(point.point), violation));
    }
  }
  report::Validity& validity = session.report().validity;
  if (num_measured == 0) session.invalidate("no point was measured");
  if (outcome.is_interrupted) {
    validity.partial = true;
    validity.reasons.emplace_back("interrupted: the points and repetitions after it are missing");
  }
}

}  // namespace moe::app
