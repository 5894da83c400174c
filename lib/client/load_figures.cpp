#include "lib/client/load_figures.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/client/time_bins.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::client {
namespace {

constexpr std::int64_t kMaxBins = 120;
// Windows of the dispersion hold so many requests on average.
constexpr double kPerWindow = 5.0;

// Arrivals of one read have one time and are one.
std::vector<TokenArrival> merged(const std::vector<TokenArrival>& arrivals) {
  std::vector<TokenArrival> all;
  all.reserve(arrivals.size());
  for (const TokenArrival& arrival : arrivals) {
    if (!all.empty() && all.back().offset_s == arrival.offset_s) {
      all.back().num_tokens += arrival.num_tokens;
    } else {
      all.push_back(arrival);
    }
  }
  return all;
}

struct ArrivalSums {
  double tokens = 0.0;
  double arrivals = 0.0;
};

void add_gaps(const RequestRecord& record, LoadFigures& figures, ArrivalSums& sums) {
  const std::vector<TokenArrival> arrivals = merged(record.arrivals);
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const auto num_tokens = static_cast<double>(arrivals[i].num_tokens);
    sums.tokens += num_tokens;
    sums.arrivals += 1.0;
    if (i == 0) continue;
    const double gap_s =
        static_cast<double>(arrivals[i].offset_s) - static_cast<double>(arrivals[i - 1].offset_s);
    figures.icl_s.push_back(gap_s);
    if (record.token_source == TokenSource::kNone || num_tokens <= 0.0) continue;
    const std::int64_t count = std::max<std::int64_t>(1, std::llround(num_tokens));
    const double share_s = gap_s / std::max(1.0, num_tokens);
    figures.itl_s.insert(figures.itl_s.end(), static_cast<std::size_t>(count), share_s);
  }
}

void add_latencies(const RequestRecord& record, LoadFigures& figures) {
  const double sent_s = *record.sent_s;
  if (record.connect_s) figures.connect_s.push_back(*record.connect_s);
  if (record.first_token_s) {
    figures.ttft_s.push_back(*record.first_token_s - sent_s);
    figures.ttft_from_intended_s.push_back(*record.first_token_s - record.intended_s);
  }
  if (record.first_visible_s) figures.ttfvt_s.push_back(*record.first_visible_s - sent_s);
  const std::optional<double> last_s = record.last_token_s ? record.last_token_s : record.end_s;
  figures.e2e_s.push_back(*last_s - sent_s);
  figures.e2e_from_intended_s.push_back(*last_s - record.intended_s);
}

std::optional<double> tpot_of(const RequestRecord& record) {
  if (!record.first_token_s || !record.output_tokens || *record.output_tokens < 2) {
    return std::nullopt;
  }
  return (*record.last_token_s - *record.first_token_s) /
         static_cast<double>(*record.output_tokens - 1);
}

void add_counts(const RequestRecord& record, LoadFigures& figures) {
  ++figures.token_sources[static_cast<std::size_t>(record.token_source)];
  figures.output_tokens += record.output_tokens.value_or(0);
  figures.input_tokens += record.prompt_tokens.value_or(record.requested_prompt_tokens);
  if (record.cached_tokens) {
    figures.has_cached_tokens = true;
    figures.cached_tokens += *record.cached_tokens;
  }
  if (record.requested_output_tokens > 0 && record.output_tokens) {
    figures.requested_output_tokens += record.requested_output_tokens;
    if (*record.output_tokens < record.requested_output_tokens) ++figures.num_short_outputs;
  }
  if (record.prompt_tokens && record.requested_prompt_tokens > 0 &&
      *record.prompt_tokens != record.requested_prompt_tokens) {
    ++figures.num_other_prompt_lengths;
  }
  if (!record.output_tokens || *record.output_tokens == 0) return;
  for (const std::optional<std::int64_t>& other :
       {record.server_output_tokens, record.id_output_tokens, record.tokenizer_output_tokens}) {
    if (!other) continue;
    const double ratio =
        std::abs(static_cast<double>(*other) / static_cast<double>(*record.output_tokens) - 1.0);
    figures.largest_disagreement_ratio =
        std::max(ratio, figures.largest_disagreement_ratio.value_or(0.0));
  }
}

class LevelCounter {
 public:
  explicit LevelCounter(const ServiceLevel& level) : level_(level) {}

  void add(const RequestRecord& record) {
    ++num_;
    const bool ok = record.is_success();
    const std::optional<double> first_s =
        ok && record.first_token_s
            ? std::optional<double>(*record.first_token_s - record.sent_s.value_or(0.0))
            : std::nullopt;
    const std::optional<double> last_s = record.last_token_s ? record.last_token_s : record.end_s;
    const std::optional<double> whole_s =
        ok && last_s ? std::optional<double>(*last_s - record.sent_s.value_or(0.0)) : std::nullopt;
    bool keeps_all = ok;
    const auto judge = [&](const std::optional<double>& limit, const std::optional<double>& value,
                           std::int64_t& count) {
      if (!limit) return;
      const bool keeps = value && *value <= *limit;
      count += keeps ? 1 : 0;
      keeps_all = keeps_all && keeps;
    };
    judge(level_.ttft_s, first_s, ttft_);
    judge(level_.tpot_s, ok ? tpot_of(record) : std::nullopt, tpot_);
    judge(level_.e2e_s, whole_s, e2e_);
    all_ += keeps_all ? 1 : 0;
  }

  void finish(LoadFigures& figures) const {
    if (num_ == 0 || !level_.is_set()) return;
    const auto share = [&](std::int64_t count) {
      return static_cast<double>(count) / static_cast<double>(num_);
    };
    figures.shares.all = share(all_);
    if (level_.ttft_s) figures.shares.ttft = share(ttft_);
    if (level_.tpot_s) figures.shares.tpot = share(tpot_);
    if (level_.e2e_s) figures.shares.e2e = share(e2e_);
    if (figures.window_s > 0.0) {
      figures.goodput_requests_per_s = static_cast<double>(all_) / figures.window_s;
    }
  }

 private:
  const ServiceLevel& level_;
  std::int64_t num_ = 0;
  std::int64_t all_ = 0;
  std::int64_t ttft_ = 0;
  std::int64_t tpot_ = 0;
  std::int64_t e2e_ = 0;
};

void add_rates(const std::vector<double>& sends, double first_s, double last_s,
               LoadFigures& figures) {
  figures.window_s = std::max(0.0, last_s - first_s);
  if (figures.window_s > 0.0 && figures.num_succeeded > 0) {
    const double window_s = figures.window_s;
    figures.requests_per_s = static_cast<double>(figures.num_succeeded) / window_s;
    figures.input_tokens_per_s = static_cast<double>(figures.input_tokens) / window_s;
    const bool is_counted =
        figures.token_sources[static_cast<std::size_t>(TokenSource::kNone)] == 0;
    if (is_counted) {
      figures.output_tokens_per_s = static_cast<double>(figures.output_tokens) / window_s;
    }
  }
  if (sends.size() < 2 || sends.back() <= sends.front()) return;
  const double span_s = sends.back() - sends.front();
  const double rate = static_cast<double>(sends.size() - 1) / span_s;
  figures.offered_requests_per_s = rate;
  std::vector<double> counts(static_cast<std::size_t>(span_s * rate / kPerWindow) + 1, 0.0);
  double gap_sum = 0.0;
  double gap_squares = 0.0;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const auto window = static_cast<std::size_t>((sends[i] - sends.front()) * rate / kPerWindow);
    if (window < counts.size()) counts[window] += 1.0;
    if (i == 0) continue;
    const double gap_s = sends[i] - sends[i - 1];
    gap_sum += gap_s;
    gap_squares += gap_s * gap_s;
  }
  const auto num_gaps = static_cast<double>(sends.size() - 1);
  const double mean_gap_s = gap_sum / num_gaps;
  const double variance = std::max(0.0, gap_squares / num_gaps - mean_gap_s * mean_gap_s);
  figures.gap_cv = std::sqrt(variance) / mean_gap_s;
  counts.pop_back();  // the last window is not full
  if (counts.size() < 20) return;
  const stats::Distribution of_counts = stats::summarize(counts);
  if (*of_counts.mean > 0.0) {
    figures.dispersion = *of_counts.stdev * *of_counts.stdev / *of_counts.mean;
  }
}

void check(const LoadResult& result, LoadFigures& figures) {
  std::int64_t by_class = 0;
  for (const std::int64_t count : figures.failures) by_class += count;
  if (by_class != figures.num_requests) {
    figures.violations.push_back(
        fmt::format("{} requests ended, {} have a class", figures.num_requests, by_class));
  }
  if (figures.peak_output_tokens_per_s && figures.output_tokens_per_s && figures.window_s >= 1.0 &&
      *figures.peak_output_tokens_per_s < 0.999 * *figures.output_tokens_per_s) {
    figures.violations.emplace_back("the busiest second has fewer tokens than the mean");
  }
  for (const RequestRecord& record : result.records) {
    if (!record.is_success() || record.token_source == TokenSource::kNone) continue;
    if (record.arrivals.empty()) continue;
    double tokens = 0.0;
    for (const TokenArrival& arrival : record.arrivals)
      tokens += static_cast<double>(arrival.num_tokens);
    const auto counted = static_cast<double>(record.output_tokens.value_or(0));
    if (std::abs(tokens - counted) > 0.01 * std::max(1.0, counted)) {
      figures.violations.push_back(fmt::format("request {}: {} tokens arrived, {} were counted",
                                               record.index, tokens, counted));
      return;
    }
  }
}

}  // namespace

LoadFigures figures_of(const LoadResult& result, const ServiceLevel& level) {
  LoadFigures figures;
  ArrivalSums sums;
  LevelCounter counter(level);
  std::vector<double> sends;
  double first_s = 0.0;
  double last_s = 0.0;
  bool has_send = false;
  for (const RequestRecord& record : result.records) {
    ++figures.num_requests;
    ++figures.failures[static_cast<std::size_t>(record.failure)];
    if (record.num_sends > 1) ++figures.num_resent;
    if (record.sent_s) {
      sends.push_back(*record.sent_s);
      first_s = has_send ? std::min(first_s, *record.sent_s) : *record.sent_s;
      has_send = true;
    }
    if (record.failure != Failure::kCancelled) counter.add(record);
    if (!record.is_success() || !record.sent_s || !record.end_s) continue;
    ++figures.num_succeeded;
    last_s = std::max(last_s, std::max(*record.end_s, record.last_token_s.value_or(0.0)));
    add_latencies(record, figures);
    add_gaps(record, figures, sums);
    add_counts(record, figures);
    if (const std::optional<double> tpot_s = tpot_of(record)) figures.tpot_s.push_back(*tpot_s);
    figures.has_exact_arrivals = figures.has_exact_arrivals && record.has_exact_arrivals;
  }
  std::sort(sends.begin(), sends.end());
  if (sums.arrivals > 0.0) figures.tokens_per_arrival = sums.tokens / sums.arrivals;
  add_rates(sends, first_s, last_s, figures);
  counter.finish(figures);
  add_bins(result, kMaxBins, figures);
  check(result, figures);
  return figures;
}

LoadResult merge_rounds(std::vector<LoadResult> rounds) {
  LoadResult all;
  double offset_s = 0.0;
  std::int64_t next_index = 0;
  const auto shift = [&](std::optional<double>& time_s) {
    if (time_s) *time_s += offset_s;
  };
  for (LoadResult& round : rounds) {
    for (RequestRecord& record : round.records) {
      record.index = next_index++;
      record.intended_s += offset_s;
      for (std::optional<double>* time_s :
           {&record.sent_s, &record.headers_s, &record.first_token_s, &record.first_visible_s,
            &record.last_token_s, &record.end_s}) {
        shift(*time_s);
      }
      all.records.push_back(std::move(record));
    }
    for (InFlightSample& sample : round.in_flight) {
      all.in_flight.push_back({sample.time_s + offset_s, sample.in_flight});
    }
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.self.send_lag_s, round.self.send_lag_s);
    append(all.self.receive_delay_s, round.self.receive_delay_s);
    all.self.cpu_s += round.self.cpu_s;
    all.self.wall_s += round.self.wall_s;
    all.self.num_loops = round.self.num_loops;
    all.self.num_reads += round.self.num_reads;
    all.self.num_bytes += round.self.num_bytes;
    all.self.longest_pass_s = std::max(all.self.longest_pass_s, round.self.longest_pass_s);
    all.self.read_window_s = std::max(all.self.read_window_s, round.self.read_window_s);
    all.self.has_kernel_times = all.self.has_kernel_times || round.self.has_kernel_times;
    all.self.has_short_slice = all.self.has_short_slice || round.self.has_short_slice;
    all.num_planned += round.num_planned;
    all.num_dropped += round.num_dropped;
    all.drain_s += round.drain_s;
    all.peak_in_flight = std::max(all.peak_in_flight, round.peak_in_flight);
    if (all.end == LoadEnd::kCount) {
      all.end = round.end;
      all.end_detail = round.end_detail;
    }
    if (all.started_unix_s == 0.0) {
      all.started_unix_s = round.started_unix_s;
      all.started_monotonic_s = round.started_monotonic_s;
    }
    offset_s += round.measured_end_s;
  }
  all.measured_end_s = offset_s;
  return all;
}

}  // namespace moe::client
