// The result file of vllm bench serve; with --save-detailed it holds every request.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/client_reports/json_values.hpp"
#include "lib/client_reports/readers.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

struct Detail {
  std::vector<double> ttfts_s;
  std::vector<double> latencies_s;
  std::vector<double> output_lens;
  std::vector<std::vector<double>> gaps_s;  // of each request
  std::vector<bool> is_failed;
};

// All lists must have an entry a request; otherwise none is used.
std::optional<Detail> read_detail(const Json& document) {
  Detail detail;
  detail.ttfts_s = numbers(document, {"ttfts"});
  detail.output_lens = numbers(document, {"output_lens"});
  const std::size_t size = detail.ttfts_s.size();
  if (size == 0 || detail.output_lens.size() != size) return std::nullopt;
  const Json* itls = member(document, {"itls"});
  if (itls != nullptr && itls->is_array() && itls->size() == size) {
    for (const Json& one : *itls) {
      std::vector<double> gaps;
      if (one.is_array()) {
        for (const Json& gap : one) {
          if (gap.is_number()) gaps.push_back(gap.get<double>());
        }
      }
      detail.gaps_s.push_back(std::move(gaps));
    }
  }
  detail.latencies_s = numbers(document, {"latencies"});
  // Releases before "latencies" was written: the latency is the sum of its parts.
  if (detail.latencies_s.size() != size && detail.gaps_s.size() == size) {
    detail.latencies_s.clear();
    for (std::size_t i = 0; i < size; ++i) {
      double latency_s = detail.ttfts_s[i];
      for (const double gap_s : detail.gaps_s[i]) latency_s += gap_s;
      detail.latencies_s.push_back(latency_s);
    }
  }
  if (detail.latencies_s.size() != size) return std::nullopt;
  const Json* errors = member(document, {"errors"});
  const bool has_errors = errors != nullptr && errors->is_array() && errors->size() == size;
  for (std::size_t i = 0; i < size; ++i) {
    const bool has_error = has_errors && (*errors)[i].is_string() && (*errors)[i] != "";
    detail.is_failed.push_back(has_error || detail.output_lens[i] <= 0.0);
  }
  return detail;
}

void add_summary(const Json& document, const std::string& name, const char* theirs,
                 ClientReport& report) {
  Latency latency;
  latency.their_name = theirs;
  const auto ms = [&](const std::string& statistic) -> std::optional<double> {
    const std::string key = fmt::format("{}_{}_ms", statistic, theirs);
    const std::optional<double> value = number(document, {key.c_str()});
    return value ? std::optional(*value * 1e-3) : std::nullopt;
  };
  latency.mean_s = ms("mean");
  latency.stdev_s = ms("std");
  latency.count = report.completed;
  if (const auto median = ms("median")) latency.percentiles_s.emplace_back("p50", *median);
  for (const char* p : {"p90", "p95", "p99"}) {
    if (const auto value = ms(p)) latency.percentiles_s.emplace_back(p, *value);
  }
  if (latency.mean_s) report.latencies[name] = std::move(latency);
}

// True when the first gap is far above the rest and the wait for the first token far below it: the
// clock stopped at a chunk that carried no token.
bool is_prelude_first(double ttft_s, const std::vector<double>& gaps_s) {
  if (gaps_s.size() < 4) return false;
  const double rest_s = stats::median(std::vector<double>(gaps_s.begin() + 1, gaps_s.end()));
  return gaps_s.front() > 4.0 * rest_s && gaps_s.front() > 4.0 * ttft_s;
}

void doubt_events(const Detail& detail, ClientReport& report) {
  std::int64_t requests = 0;
  std::int64_t preludes = 0;
  std::int64_t extra = 0;
  double gaps = 0.0;
  double steps = 0.0;
  for (std::size_t i = 0; i < detail.gaps_s.size(); ++i) {
    if (detail.is_failed[i]) continue;
    ++requests;
    gaps += static_cast<double>(detail.gaps_s[i].size());
    steps += detail.output_lens[i] - 1.0;
    if (static_cast<double>(detail.gaps_s[i].size()) > detail.output_lens[i] - 1.0) ++extra;
    if (is_prelude_first(detail.ttfts_s[i], detail.gaps_s[i])) ++preludes;
  }
  if (requests == 0) return;
  if (preludes * 2 > requests) {
    report.doubts.push_back(
        {"import.prelude_counted", DoubtLevel::kError,
         fmt::format("in {} of {} requests the first gap is more than four times the time to first "
                     "token and the usual gap: a chunk without a token was taken for the first "
                     "token, so TTFT is too small and TPOT too large",
                     preludes, requests),
         "measure again with moe-bench serve; these figures cannot be repaired"});
  }
  if (extra * 2 > requests) {
    report.doubts.push_back(
        {"import.extra_gap", DoubtLevel::kWarning,
         fmt::format("{} of {} requests have more gaps than tokens after the first: the closing "
                     "event without text was counted as a token, with a gap near zero",
                     extra, requests),
         "read tpot_s, which does not contain it, instead of icl_s"});
  }
  if (steps > 0.0 && gaps < 0.9 * steps) {
    report.doubts.push_back(
        {"import.bundled_tokens", DoubtLevel::kWarning,
         fmt::format("{:.0f} gaps for {:.0f} tokens after the first: events held several tokens, "
                     "so what the file calls ITL is the time between events",
                     gaps, steps),
         "read tpot_s for the time a token; icl_s is the time an event"});
  }
}

void add_detail(const Detail& detail, ClientReport& report) {
  for (std::size_t i = 0; i < detail.ttfts_s.size(); ++i) {
    if (detail.is_failed[i]) continue;
    RequestFigures figures;
    figures.ttft_s = detail.ttfts_s[i];
    figures.latency_s = detail.latencies_s[i];
    figures.output_tokens = static_cast<std::int64_t>(std::min(detail.output_lens[i], 9e15));
    add_request(figures, "ttfts, latencies, output_lens", report);
    if (detail.gaps_s.empty()) continue;
    Latency& gaps = report.latencies["icl_s"];
    gaps.their_name = "itls";
    gaps.samples_s.insert(gaps.samples_s.end(), detail.gaps_s[i].begin(), detail.gaps_s[i].end());
  }
  doubt_events(detail, report);
}

}  // namespace

ClientReport read_vllm_serve(const Json& document) {
  ClientReport report;
  report.tool = Tool::kVllmServe;
  report.model = text(document, {"model_id"});
  report.date = text(document, {"date"});
  report.completed = count(document, {"completed"});
  report.failed = count(document, {"failed"});
  const std::optional<std::int64_t> planned = count(document, {"num_prompts"});
  if (planned && report.completed && *planned >= *report.completed) {
    // Releases without the count of failures.
    if (!report.failed) report.failed = *planned - *report.completed;
    report.dropped = std::max<std::int64_t>(*planned - *report.completed - *report.failed, 0);
  }
  report.duration_s = number(document, {"duration"});
  report.input_tokens = count(document, {"total_input_tokens"});
  report.output_tokens = count(document, {"total_output_tokens"});
  report.requests_per_s = number(document, {"request_throughput"});
  report.output_tokens_per_s = number(document, {"output_throughput"});
  report.total_tokens_per_s = number(document, {"total_token_throughput"});
  if (const auto streams = count(document, {"max_concurrency"})) {
    report.load = fmt::format("{} streams", *streams);
  } else if (const auto rate = number(document, {"request_rate"})) {
    report.load = fmt::format("{} requests/s", *rate);
  } else {
    report.load = "all at once";
  }
  add_summary(document, "ttft_s", "ttft", report);
  add_summary(document, "tpot_s", "tpot", report);
  add_summary(document, "icl_s", "itl", report);
  add_summary(document, "e2el_s", "e2el", report);
  if (const std::optional<Detail> detail = read_detail(document)) add_detail(*detail, report);
  const std::optional<double> peak = number(document, {"max_output_tokens_per_s"});
  if (peak && report.output_tokens_per_s && *peak < *report.output_tokens_per_s) {
    report.doubts.push_back(
        {"import.peak_below_mean", DoubtLevel::kWarning,
         fmt::format("the peak of {:.1f} tokens/s is below the mean of {:.1f}: events were counted "
                     "as tokens",
                     *peak, *report.output_tokens_per_s),
         "do not use the peak"});
  }
  return report;
}

ClientReport read_vllm_throughput(const Json& document) {
  ClientReport report;
  report.tool = Tool::kVllmThroughput;
  report.model = text(document, {"model_id"});
  report.completed = count(document, {"num_requests"});
  report.duration_s = number(document, {"elapsed_time"});
  report.requests_per_s = number(document, {"requests_per_second"});
  report.total_tokens_per_s = number(document, {"tokens_per_second"});
  report.load = "offline batch";
  return report;
}

}  // namespace moe::client_reports
