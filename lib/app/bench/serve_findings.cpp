// What a reader of a serving report has to know: conditions, doubts, failures, and what makes it
// invalid.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/serve_report.hpp"

namespace moe::app {
namespace {

using client::Failure;
using client::LoadFigures;
using client::TokenSource;
using report::Severity;

constexpr double kBundled = 1.05;
constexpr double kDisagreement = 0.02;
constexpr double kOfferedTolerance = 0.02;
// Counts of both sides may differ by what was under way at the two readings.
constexpr double kCountTolerance = 0.01;
constexpr double kCachedShare = 0.05;

void add_client(const ServePointOutcome& outcome, const ServeFacts& facts, const std::string& who,
                ReportSession& session) {
  if (!outcome.verdict.is_bound) return;
  for (const std::string& reason : outcome.verdict.reasons) {
    session.add_finding("client.bound", Severity::kError, fmt::format("{}: {}", who, reason),
                        "The client was the limit: use fewer streams, more --loops, an idle "
                        "machine, or accept with --accept-client-bound");
  }
  if (!facts.args->accepts_client_bound) {
    session.invalidate(fmt::format("{}: client-bound: {}", who, outcome.verdict.reasons.front()));
  }
}

void add_failures(const ServePointOutcome& outcome, const std::string& who,
                  ReportSession& session) {
  const LoadFigures& figures = outcome.figures;
  std::string classes;
  std::int64_t num_failed = 0;
  for (std::size_t i = 1; i < figures.failures.size(); ++i) {
    if (figures.failures[i] == 0 || static_cast<Failure>(i) == Failure::kCancelled) continue;
    num_failed += figures.failures[i];
    classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ", figures.failures[i],
                           client::name_of(static_cast<Failure>(i)));
  }
  if (num_failed > 0) {
    session.add_finding("serve.failures", Severity::kWarning,
                        fmt::format("{}: {} of {} requests failed ({}); they are in no latency and "
                                    "in no rate",
                                    who, num_failed, figures.num_requests, classes),
                        "The table of failures quotes the first message of each class");
  }
  if (figures.num_resent > 0) {
    session.add_finding("serve.resent", Severity::kInfo,
                        fmt::format("{}: {} requests went out again since the server had closed "
                                    "the connection it promised to keep; their times count from "
                                    "the second send",
                                    who, figures.num_resent),
                        "");
  }
  if (outcome.result.num_dropped > 0) {
    session.add_finding("serve.dropped", Severity::kWarning,
                        fmt::format("{}: {} requests fell due and were never sent", who,
                                    outcome.result.num_dropped),
                        "");
  }
}

void add_tokens(const ServePointOutcome& outcome, const std::string& who, ReportSession& session) {
  const LoadFigures& figures = outcome.figures;
  if (figures.num_succeeded == 0) return;
  if (figures.token_sources[static_cast<std::size_t>(TokenSource::kNone)] > 0) {
    session.add_finding("tokens.no_source", Severity::kWarning,
                        fmt::format("{}: the server sends neither token ids nor usage, so token "
                                    "rates are not printed",
                                    who),
                        "Give --checkpoint DIR to count with its tokenizer");
  } else if (!figures.has_exact_arrivals && !figures.itl_s.empty()) {
    session.add_finding("tokens.spread", Severity::kInfo,
                        fmt::format("{}: the server tells only totals, and they differ from the "
                                    "number of events: tokens are spread evenly over an answer's "
                                    "events",
                                    who),
                        "icl_s, tpot_s and e2el_s do not depend on it");
  }
  if (figures.tokens_per_arrival && *figures.tokens_per_arrival > kBundled) {
    session.add_finding("tokens.bundled", Severity::kInfo,
                        fmt::format("{}: {:.2f} tokens an arrival: icl_s is the gap between "
                                    "bundles, itl_s is per token",
                                    who, *figures.tokens_per_arrival),
                        "");
  }
  if (figures.largest_disagreement_ratio && *figures.largest_disagreement_ratio > kDisagreement) {
    session.add_finding("tokens.disagree", Severity::kWarning,
                        fmt::format("{}: two counts of one answer's tokens differ by up to {:.0f} "
                                    "%; the better source is used throughout",
                                    who, *figures.largest_disagreement_ratio * 100.0),
                        "--requests-jsonl shows all counts of each request");
  }
  if (figures.num_short_outputs > 0) {
    session.add_finding("tokens.short_outputs", Severity::kWarning,
                        fmt::format("{}: {} of {} answers have fewer tokens than asked for ({} of "
                                    "{} in all)",
                                    who, figures.num_short_outputs, figures.num_succeeded,
                                    figures.output_tokens, figures.requested_output_tokens),
                        "The server does not obey ignore_eos, or --keep-eos was given");
  }
  if (figures.num_other_prompt_lengths > 0) {
    session.add_finding("tokens.prompt_lengths", Severity::kWarning,
                        fmt::format("{}: the server counts another prompt length than was sent in "
                                    "{} requests",
                                    who, figures.num_other_prompt_lengths),
                        "It adds or drops tokens; input rates follow its count");
  }
}

void add_load(const ServePointOutcome& outcome, const std::string& who, const ServeFacts& facts,
              ReportSession& session) {
  const LoadFigures& figures = outcome.figures;
  if (outcome.result.end == client::LoadEnd::kSaturated) {
    session.add_finding("serve.saturated", Severity::kWarning,
                        fmt::format("{}: stopped after {:.0f} s: {}", who,
                                    outcome.result.measured_end_s, outcome.result.end_detail),
                        "The server does not keep up with this rate");
  }
  const bool is_rate = outcome.point.kind == LoadKind::kRate;
  // Random arrivals scatter: three standard deviations of their mean rate.
  const double scatter = 3.0 / std::sqrt(std::max(1.0, static_cast<double>(figures.num_requests)));
  const bool is_even = facts.args->load.arrivals == "even";
  const double tolerance = kOfferedTolerance + (is_even ? 0.0 : scatter);
  if (is_rate && figures.offered_requests_per_s && figures.num_requests >= 100 &&
      std::abs(*figures.offered_requests_per_s / outcome.point.load - 1.0) > tolerance) {
    session.add_finding(
        "client.rate_missed", Severity::kWarning,
        fmt::format("{}: {:.4g} requests/s were sent", who, *figures.offered_requests_per_s),
        "client_send_lag_s says why");
  }
  if (figures.has_cached_tokens && figures.input_tokens > 0 &&
      facts.args->request.prefix_tokens == 0 && facts.inputs->conversations.empty() &&
      facts.inputs->trace.empty()) {
    const double share =
        static_cast<double>(figures.cached_tokens) / static_cast<double>(figures.input_tokens);
    if (share > kCachedShare) {
      session.add_finding("prompts.cached", Severity::kWarning,
                          fmt::format("{}: the server had {:.0f} % of the prompt tokens cached, "
                                      "probably from an earlier run with the same seed",
                                      who, share * 100.0),
                          "Use another --seed, or restart the server");
    }
  }
  for (const std::string& violation : figures.violations) {
    session.add_finding("serve.implausible", Severity::kError,
                        fmt::format("{}: {}", who, violation),
                        "The figures must not be used; please report this");
    session.invalidate(fmt::format("{}: {}", who, violation));
  }
}

void add_server_counts(const ServePointOutcome& outcome, const std::string& who,
                       ReportSession& session) {
  if (!outcome.delta) return;
  if (outcome.delta->was_restarted) {
    session.add_finding("server.restarted", Severity::kWarning,
                        fmt::format("{}: the server's counters went down during the run", who),
                        "It was restarted; its own view is left out");
    return;
  }
  const auto compare = [&](const std::optional<double>& server, std::int64_t own,
                           const char* what) {
    if (!server || outcome.figures.num_succeeded == 0) return;
    const double difference = *server - static_cast<double>(own);
    if (std::abs(difference) <= std::max(1.0, kCountTolerance * static_cast<double>(own))) return;
    session.add_finding("server.counts_disagree", Severity::kWarning,
                        fmt::format("{}: the server counts {:.0f} {}, this client {} ({:+.0f})",
                                    who, *server, what, own, difference),
                        "Another client, failed requests, or tokens that were not sent on");
  };
  compare(outcome.delta->generated_tokens, outcome.figures.output_tokens, "generated tokens");
  compare(outcome.delta->finished_requests, outcome.figures.num_succeeded, "finished requests");
}

void add_conditions(const ServeFacts& facts, ReportSession& session) {
  for (const std::string& field : facts.target->given_up) {
    session.add_finding("server.field_refused", Severity::kInfo,
                        fmt::format("the server refuses {}, it was left out", field), "");
  }
  if (facts.inputs->is_end_id_guessed) {
    session.add_finding("prompts.vocabulary_guessed", Severity::kInfo,
                        fmt::format("random prompts use token ids below {}: the size of the "
                                    "vocabulary is not known",
                                    facts.inputs->end_id),
                        "Give --vocab-size or --checkpoint for ids of the whole vocabulary");
  }
  if (!facts.target->endpoint.checks_tls && facts.target->endpoint.is_tls) {
    session.add_finding("server.certificate_not_checked", Severity::kWarning,
                        "the server's certificate was not checked", "Leave --insecure out");
  }
}

}  // namespace

void add_point_findings(const ServePointOutcome& outcome, const ServeFacts& facts,
                        const std::string& who, ReportSession& session) {
  add_client(outcome, facts, who, session);
  add_failures(outcome, who, session);
  add_tokens(outcome, who, session);
  add_load(outcome, who, facts, session);
  add_server_counts(outcome, who, session);
  report::Validity& validity = session.report().validity;
  const client::LoadEnd end = outcome.result.end;
  if (end == client::LoadEnd::kServerGone || end == client::LoadEnd::kInterrupted) {
    validity.partial = true;
    validity.reasons.push_back(fmt::format("{}: {}", who, outcome.result.end_detail));
  }
  if (end == client::LoadEnd::kServerGone) {
    session.add_finding("server.gone", Severity::kError,
                        fmt::format("{}: the server stopped answering after {:.1f} s", who,
                                    outcome.result.measured_end_s),
                        "The figures are of the requests before that; see the server's log");
  }
  if (outcome.figures.num_succeeded == 0) {
    session.invalidate(fmt::format("{}: no request succeeded", who));
  }
}

void add_serve_findings(const ServeOutcome& outcome, const ServeFacts& facts,
                        ReportSession& session) {
  add_conditions(facts, session);
  for (const ServePointOutcome& point : outcome.points) {
    add_point_findings(point, facts, point.point.label, session);
  }
  if (outcome.points.empty()) session.invalidate("no load was measured");
  if (outcome.has_knee && !outcome.is_knee_bounded && !outcome.is_interrupted) {
    session.add_finding("serve.knee_not_bounded", Severity::kWarning,
                        "the search ended before a load failed the service level",
                        "The knee is at least the highest load that was tried");
  }
}

json::Json serve_subject(const ServeTarget& target) {
  json::Json subject;
  subject["kind"] = "server";
  subject["name"] = fmt::format("{} at {}", target.body.model, target.endpoint.display);
  subject["content_hash"] = nullptr;
  subject["model"] = target.body.model;
  subject["address"] = target.endpoint.display;
  subject["server"] = client::name_of(target.identity.kind);
  subject["server_version"] =
      target.identity.version.empty() ? json::Json(nullptr) : json::Json(target.identity.version);
  subject["models_listed"] = target.identity.models;
  subject["max_model_tokens"] = target.identity.max_model_tokens
                                    ? json::Json(*target.identity.max_model_tokens)
                                    : json::Json(nullptr);
  subject["kv_cache_tokens"] = target.identity.kv_cache_tokens
                                   ? json::Json(*target.identity.kv_cache_tokens)
                                   : json::Json(nullptr);
  return subject;
}

void fill_serve_settings(const ServeFacts& facts, json::Json& settings) {
  const LoadArgs& load = facts.args->load;
  const RequestArgs& request = facts.args->request;
  settings["concurrency"] = load.concurrency;
  settings["rate"] = load.rates;
  settings["arrivals"] = load.arrivals;
  settings["gap_cv"] = load.gap_cv;
  settings["ramp"] = load.ramp;
  settings["rate_series"] = load.rate_series;
  settings["trace"] = load.trace;
  settings["rate_scale"] = load.rate_scale;
  settings["stress"] = load.is_stress;
  settings["knee"] = load.finds_knee;
  settings["requests"] = load.requests;
  settings["duration_s"] = load.duration_s;
  settings["think_time_s"] = load.think_time_s;
  settings["drain_s"] = load.drain_s;
  settings["warmup"] = load.warmup;
  settings["until_ci_ratio"] = load.until_ci ? json::Json(*load.until_ci) : json::Json(nullptr);
  settings["loops"] = load.loops;
  settings["seed"] = load.seed;
  settings["configured"] = load.configured;
  settings["slo_ttft_s"] = load.slo_ttft_s;
  settings["slo_tpot_s"] = load.slo_tpot_s;
  settings["slo_e2el_s"] = load.slo_e2e_s;
  settings["slo_share"] = load.slo_share;
  settings["prompt_tokens"] = request.prompt_tokens;
  settings["output_tokens"] = request.output_tokens;
  settings["dataset"] = request.dataset;
  settings["turns"] = request.turns;
  settings["shared_prefix_tokens"] = request.prefix_tokens;
  settings["prefixes"] = request.num_prefixes;
  settings["ids_below"] = facts.inputs->end_id;
  settings["temperature"] = request.temperature;
  settings["ignore_eos"] = !request.keeps_eos;
  settings["stream"] = !request.has_no_stream;
  settings["timeout_s"] = facts.args->server.timeout_s;
  settings["clock"] = "CLOCK_MONOTONIC; arrivals from the kernel's receive time stamps";
}

}  // namespace moe::app
