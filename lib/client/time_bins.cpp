// The run cut into slices of time, for charts.

#include "lib/client/time_bins.hpp"

#include <algorithm>
#include <cmath>

#include "lib/client/load_figures.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::client {
namespace {

// 0.1, 0.2, 0.5, 1, 2, 5, ... seconds: the smallest that needs no more slices than allowed.
double bin_width_s(double total_s, std::int64_t max_bins) {
  double width_s = 0.1;
  for (int step = 0; total_s / width_s > static_cast<double>(max_bins); ++step) {
    width_s *= step % 3 == 1 ? 2.5 : 2.0;
  }
  return width_s;
}

// Arrivals of tokens from all requests, in order of time.
std::vector<std::pair<double, double>> token_times(const LoadResult& result) {
  std::vector<std::pair<double, double>> times;
  for (const RequestRecord& record : result.records) {
    if (!record.is_success() || !record.sent_s) continue;
    if (record.arrivals.empty() && record.end_s && record.output_tokens) {
      times.emplace_back(*record.end_s, static_cast<double>(*record.output_tokens));
    }
    for (const TokenArrival& arrival : record.arrivals) {
      times.emplace_back(*record.sent_s + static_cast<double>(arrival.offset_s),
                         static_cast<double>(arrival.num_tokens));
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

// The most tokens in any second.
std::optional<double> busiest_second(const std::vector<std::pair<double, double>>& times) {
  if (times.empty()) return std::nullopt;
  double best = 0.0;
  double inside = 0.0;
  std::size_t begin = 0;
  for (const auto& [time_s, tokens] : times) {
    inside += tokens;
    while (times[begin].first <= time_s - 1.0) inside -= times[begin++].second;
    best = std::max(best, inside);
  }
  return best;
}

}  // namespace

void add_bins(const LoadResult& result, std::int64_t max_bins, LoadFigures& figures) {
  const double width_s = bin_width_s(result.measured_end_s, max_bins);
  const auto count = static_cast<std::size_t>(result.measured_end_s / width_s) + 1;
  std::vector<TimeBin> bins(count);
  std::vector<std::vector<double>> ttft(count);
  std::vector<double> flight_counts(count, 0.0);
  const auto bin_of = [&](double time_s) {
    return std::min(count - 1, static_cast<std::size_t>(std::max(0.0, time_s) / width_s));
  };
  for (std::size_t i = 0; i < count; ++i) {
    bins[i].begin_s = static_cast<double>(i) * width_s;
    bins[i].width_s = width_s;
  }
  for (const RequestRecord& record : result.records) {
    if (!record.sent_s) continue;
    ++bins[bin_of(*record.sent_s)].sent;
    if (record.end_s) {
      TimeBin& bin = bins[bin_of(*record.end_s)];
      ++(record.is_success() ? bin.completed : bin.failed);
    }
    if (record.is_success() && record.first_token_s) {
      ttft[bin_of(*record.sent_s)].push_back(*record.first_token_s - *record.sent_s);
    }
  }
  const std::vector<std::pair<double, double>> tokens = token_times(result);
  for (const auto& [time_s, number] : tokens) bins[bin_of(time_s)].output_tokens += number;
  for (const InFlightSample& sample : result.in_flight) {
    if (sample.time_s < 0.0 || sample.time_s > result.measured_end_s) continue;
    bins[bin_of(sample.time_s)].in_flight_mean += static_cast<double>(sample.in_flight);
    flight_counts[bin_of(sample.time_s)] += 1.0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (flight_counts[i] > 0.0) bins[i].in_flight_mean /= flight_counts[i];
    if (ttft[i].empty()) continue;
    bins[i].ttft_median_s = stats::median(ttft[i]);
    bins[i].ttft_max_s = *std::max_element(ttft[i].begin(), ttft[i].end());
  }
  figures.bins = std::move(bins);
  if (figures.output_tokens_per_s) figures.peak_output_tokens_per_s = busiest_second(tokens);
}

}  // namespace moe::client
