// The metrics of moe-bench serve, each with its definition, and what the checklist reads.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/serve_report.hpp"
#include "lib/app/table_builder.hpp"

namespace moe::app {
namespace {

using client::LoadFigures;
using client::TokenSource;
using report::MetricKind;
using Metrics = std::map<std::string, report::Metric>;

constexpr const char* kNoSuccess = "no request succeeded";

std::string token_source_words(const LoadFigures& figures) {
  std::string words;
  for (const TokenSource source :
       {TokenSource::kTokenIds, TokenSource::kContinuousUsage, TokenSource::kFinalUsage,
        TokenSource::kTokenizer, TokenSource::kNone}) {
    const std::int64_t count = figures.token_sources[static_cast<std::size_t>(source)];
    if (count == 0) continue;
    words += fmt::format("{}{} ({} requests)", words.empty() ? "" : ", ", client::name_of(source),
                         count);
  }
  return words.empty() ? "none" : words;
}

void add_gaps(const ServePointOutcome& outcome, const std::string& suffix, Metrics& metrics) {
  const LoadFigures& figures = outcome.figures;
  const auto sampled = [&](const char* name, const std::vector<double>& samples,
                           const std::string& reason, const std::string& how) {
    metrics[name + suffix] =
        sampled_metric("s", samples, figures.num_succeeded > 0 ? reason : kNoSuccess, how);
  };
  const std::string spread =
      figures.has_exact_arrivals
          ? ""
          : "; where only a total is known, an answer's tokens are spread evenly over its events";
  sampled("icl_s", figures.icl_s, "no answer came in two reads",
          "gap between two arrivals that carried tokens; events of one read are one arrival");
  sampled("itl_s", figures.itl_s, "no answer had two arrivals with a known number of tokens",
          "the gaps of icl_s, each divided by the tokens that ended it and counted once for each "
          "of them; tokens from " +
              token_source_words(figures) + spread);
  sampled("tpot_s", figures.tpot_s, "no streamed answer had two tokens",
          "(last token - first token) / (tokens - 1), one value a request");
}

void add_latencies(const ServePointOutcome& outcome, const std::string& suffix, Metrics& metrics) {
  const LoadFigures& figures = outcome.figures;
  const bool has_success = figures.num_succeeded > 0;
  const auto sampled = [&](const char* name, const std::vector<double>& samples,
                           const std::string& reason, const std::string& how) {
    metrics[name + suffix] = sampled_metric("s", samples, has_success ? reason : kNoSuccess, how);
  };
  const std::string plain = "no answer was streamed, so no first token was seen";
  sampled("ttft_s", figures.ttft_s, plain,
          outcome.is_in_process
              ? "first token known minus the start of the request's batch"
              : "first event with a generated token, reasoning included, minus the moment the "
                "request was sent on a standing connection; role-only, empty and usage events do "
                "not count");
  add_gaps(outcome, suffix, metrics);
  sampled("e2el_s", figures.e2e_s, kNoSuccess,
          outcome.is_in_process ? "last token known minus the start of the request's batch"
                                : "last token minus the send; of a plain answer its last byte");
  if (outcome.is_in_process) return;
  sampled("ttft_from_intended_s", figures.ttft_from_intended_s, plain,
          "the same from when the schedule wanted the request sent (closed loop: when its client "
          "was free)");
  sampled("ttfvt_s", figures.ttfvt_s, plain,
          "first event with visible text or a tool call, minus the send");
  sampled("e2el_from_intended_s", figures.e2e_from_intended_s, kNoSuccess,
          "the same from when the schedule wanted the request sent");
  sampled("connect_s", figures.connect_s, "every request found a connection ready",
          "connecting and handshake of requests that had to wait for them; not in ttft_s");
}

void add_rates(const ServePointOutcome& outcome, const std::string& suffix, Metrics& metrics) {
  const LoadFigures& figures = outcome.figures;
  const auto optional = [&](const char* name, const char* unit, const std::optional<double>& value,
                            const std::string& reason, const std::string& how) {
    metrics[name + suffix] = value ? value_metric(MetricKind::kMeasured, unit, *value, how)
                                   : absent_metric(MetricKind::kMeasured, unit, reason, how);
  };
  const std::string window = outcome.is_in_process
                                 ? " / time from the start of the first batch to the last token"
                                 : " / time from the first send to the last end of a success";
  const std::string no_tokens =
      figures.num_succeeded > 0 ? "neither server nor client could count the tokens of every answer"
                                : kNoSuccess;
  optional("requests_per_s", "requests/s", figures.requests_per_s, kNoSuccess,
           "requests that succeeded" + window);
  if (!outcome.is_in_process) {
    optional("offered_requests_per_s", "requests/s", figures.offered_requests_per_s,
             "fewer than two requests were sent", "(sends - 1) / time from the first to the last");
    optional("arrival_dispersion", "1", figures.dispersion, "fewer than 100 requests were sent",
             "variance over mean of the sends in windows of five on average: 1 is Poisson");
  }
  optional("output_tokens_per_s", "tokens/s", figures.output_tokens_per_s, no_tokens,
           "tokens of successes" + window + "; from " + token_source_words(figures));
  optional("input_tokens_per_s", "tokens/s", figures.input_tokens_per_s, kNoSuccess,
           "prompt tokens of successes, as the server counts them or as they were sent" + window);
  std::optional<double> total;
  if (figures.output_tokens_per_s && figures.input_tokens_per_s) {
    total = *figures.output_tokens_per_s + *figures.input_tokens_per_s;
  }
  optional("total_tokens_per_s", "tokens/s", total, no_tokens,
           "input_tokens_per_s + output_tokens_per_s");
  optional("output_tokens_peak_1s_per_s", "tokens/s", figures.peak_output_tokens_per_s, no_tokens,
           "tokens that arrived in the busiest second");
  optional("goodput_requests_per_s", "requests/s", figures.goodput_requests_per_s,
           "no service level was given", "requests within the service level" + window);
  optional("tokens_per_arrival", "1", figures.tokens_per_arrival, "no answer was streamed",
           "tokens / arrivals; above 1 the server or the network bundles tokens");
}

void add_shares(const LoadFigures& figures, const std::string& suffix, Metrics& metrics) {
  const auto share = [&](const char* name, const std::optional<double>& value, const char* how) {
    if (value) metrics[name + suffix] = value_metric(MetricKind::kMeasured, "1", *value, how);
  };
  share("slo_share", figures.shares.all, "requests that kept the whole service level, of all sent");
  share("slo_share_ttft", figures.shares.ttft, "requests that kept the limit of TTFT");
  share("slo_share_tpot", figures.shares.tpot, "requests that kept the limit of TPOT");
  share("slo_share_e2el", figures.shares.e2e, "requests that kept the limit of latency");
  if (figures.has_cached_tokens && figures.input_tokens > 0) {
    share("prefix_cached_ratio",
          static_cast<double>(figures.cached_tokens) / static_cast<double>(figures.input_tokens),
          "prompt tokens that the server says it had cached, of all");
  }
}

void add_counts(const ServePointOutcome& outcome, const std::string& suffix, Metrics& metrics) {
  const LoadFigures& figures = outcome.figures;
  const auto count = [&](const std::string& name, std::int64_t value, const char* how) {
    metrics[name + suffix] =
        value_metric(MetricKind::kMeasured, "1", static_cast<double>(value), how);
  };
  const std::int64_t cancelled =
      figures.failures[static_cast<std::size_t>(client::Failure::kCancelled)];
  count("requests_count", figures.num_requests, "measured requests that were sent and ended");
  count("requests_succeeded_count", figures.num_succeeded,
        "answers that ended with a finish reason or [DONE] and without an error");
  count("requests_failed_count", figures.num_requests - figures.num_succeeded - cancelled,
        "all other requests but those given up by this client; none is in a latency");
  count("requests_cancelled_count", cancelled, "still running when the run ended");
  count("requests_dropped_count", outcome.result.num_dropped, "fell due and were never sent");
  count("output_tokens_count", figures.output_tokens, "tokens of successes");
  count("input_tokens_count", figures.input_tokens, "prompt tokens of successes");
  count("peak_in_flight_count", outcome.result.peak_in_flight, "requests under way at once");
}

void add_self(const ServePointOutcome& outcome, const std::string& suffix, Metrics& metrics) {
  const client::SelfMeasure& self = outcome.result.self;
  metrics["client_send_lag_s" + suffix] = sampled_metric(
      "s", self.send_lag_s, "every request was the first of its client",
      std::string("real send minus intended send, without the time to connect; of a closed loop "
                  "from each client's second request on") +
          (self.has_short_slice ? "; the loops run in time slices of 0.1 ms" : ""));
  metrics["client_receive_delay_s" + suffix] = sampled_metric(
      "s", self.receive_delay_s, "nothing was received",
      std::string("bytes read minus bytes arrived, of every 16th read; arrivals are ") +
          (self.has_kernel_times ? "the kernel's receive time stamps, so the delay is in no latency"
                                 : "when the loop looked, for want of time stamps in the kernel") +
          (self.read_window_s > 0.0
               ? fmt::format("; while events came fast over streams that are slow, the loop let "
                             "them lie for {:.2f} ms, to read many at once",
                             self.read_window_s * 1e3)
               : ""));
  metrics["client_longest_pass_s" + suffix] =
      value_metric(MetricKind::kMeasured, "s", self.longest_pass_s,
                   "longest time in which a loop of this client could not look at its sockets");
  metrics["client_cpu_s" + suffix] = value_metric(MetricKind::kMeasured, "s", self.cpu_s,
                                                  "processor time of the loops during the run");
  if (outcome.verdict.cpu_share) {
    metrics["client_busy_ratio" + suffix] =
        value_metric(MetricKind::kMeasured, "1", *outcome.verdict.cpu_share,
                     "client_cpu_s / (run time x loops)");
  }
  if (outcome.figures.output_tokens > 0) {
    metrics["client_cpu_s_per_1000_tokens" + suffix] =
        value_metric(MetricKind::kMeasured, "s",
                     self.cpu_s * 1000.0 / static_cast<double>(outcome.figures.output_tokens),
                     "client_cpu_s / output tokens x 1000");
  }
}

// Only sweeps of clients against a configured number.
void add_batch_tuning(const ServeOutcome& outcome, const LoadArgs& load, Metrics& metrics) {
  if (load.configured == 0) return;
  const bool has_level = service_level(load).is_set();
  double best = 0.0;
  double own = -1.0;
  for (const ServePointOutcome& point : outcome.points) {
    const double rate = point.figures.output_tokens_per_s.value_or(0.0);
    const bool counts = !has_level || point.meets_level;
    if (counts) best = std::max(best, rate);
    if (static_cast<std::int64_t>(point.point.load) == load.configured) own = counts ? rate : 0.0;
  }
  const char* how =
      "output tokens/s with the configured number of clients over the best of the sweep that keeps "
      "the service level";
  metrics["batch_sweep_points_count"] =
      value_metric(MetricKind::kMeasured, "1", static_cast<double>(outcome.points.size()),
                   "numbers of clients that were measured");
  metrics["batch_throughput_ratio"] =
      own >= 0.0 && best > 0.0 ? value_metric(MetricKind::kMeasured, "1", own / best, how)
                               : absent_metric(MetricKind::kMeasured, "1",
                                               own < 0.0 ? "the configured number was not measured"
                                                         : "no point keeps the service level",
                                               how);
}

}  // namespace

std::string metric_label(const std::string& label) {
  std::string name = label;
  std::replace(name.begin(), name.end(), '.', '_');
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

void add_load_metrics(const ServePointOutcome& outcome, const std::string& suffix,
                      report::Report& report) {
  add_latencies(outcome, suffix, report.metrics);
  add_rates(outcome, suffix, report.metrics);
  add_shares(outcome.figures, suffix, report.metrics);
  add_counts(outcome, suffix, report.metrics);
  if (!outcome.is_in_process) add_self(outcome, suffix, report.metrics);
}

void add_serve_metrics(const ServeOutcome& outcome, const ServeFacts& facts,
                       report::Report& report) {
  if (outcome.points.empty()) return;
  add_load_metrics(outcome.points.front(), "", report);
  if (outcome.points.size() > 1) {
    for (const ServePointOutcome& point : outcome.points) {
      add_load_metrics(point, "." + metric_label(point.point.label), report);
    }
  }
  const ServePointOutcome& first = outcome.points.front();
  if (first.point.kind == LoadKind::kStress || first.point.kind == LoadKind::kTrace) {
    const double peak = facts.inputs->trace_peak_per_s.value_or(0.0);
    if (peak > 0.0) {
      // A replay's own peak is the trace's, as fast as it is played.
      const double load = first.point.kind == LoadKind::kStress ? first.point.load / peak
                                                                : facts.args->load.rate_scale;
      const double factor =
          first.point.kind == LoadKind::kStress ? load / facts.args->load.rate_scale : load;
      report.metrics["load_over_trace_peak_ratio"] = value_metric(
          MetricKind::kMeasured, "1", factor,
          "rate of the schedule over the trace's busiest minute; client_send_lag_s says how well "
          "it was kept");
    }
  }
  add_batch_tuning(outcome, facts.args->load, report.metrics);
  if (outcome.has_knee) {
    const char* how = "highest load of the search that kept the service level";
    report.metrics["knee_load"] =
        outcome.knee_load > 0.0
            ? value_metric(MetricKind::kMeasured, "1", outcome.knee_load, how)
            : absent_metric(MetricKind::kMeasured, "1", "no load that was tried kept it", how);
    report.highlights.emplace_back("knee_load");
  }
  for (const char* name : {"ttft_s", "itl_s", "e2el_s", "requests_per_s", "output_tokens_per_s",
                           "requests_failed_count"}) {
    report.highlights.emplace_back(name);
  }
}

}  // namespace moe::app
