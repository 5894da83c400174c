#include "lib/workload/trace_profile.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "lib/base/units.hpp"

namespace moe::workload {
namespace {

constexpr double kPeakWindow_s = 60.0;
// Lengths up to here are counted exactly, above in steps of 1/256: memory stays bounded whatever a
// file holds.
constexpr std::int64_t kExactTokens = 65536;

std::int64_t counted_length(std::int64_t tokens) {
  if (tokens <= kExactTokens) return tokens;
  std::int64_t step = 1;
  while (tokens / step > 512) step *= 2;
  return tokens / step * step;
}

}  // namespace

void TraceProfiler::add(const Request& request) {
  ++input_counts_[counted_length(request.input_tokens)];
  ++output_counts_[counted_length(request.output_tokens)];
  input_sum_ += static_cast<double>(request.input_tokens);
  if (request.arrival_s) add_time(*request.arrival_s);
  if (!request.prefix_blocks.empty()) add_prefix(request);
}

void TraceProfiler::add_time(double arrival_s) {
  ++arrivals_in_second_[static_cast<std::int64_t>(std::floor(arrival_s))];
  if (num_times_ > 0 && arrival_s >= last_s_) {
    const double gap_s = arrival_s - last_s_;
    ++num_gaps_;
    gap_sum_ += gap_s;
    gap_square_sum_ += gap_s * gap_s;
  }
  ++num_times_;
  last_s_ = arrival_s;
  end_s_ = std::max(end_s_, arrival_s);
}

void TraceProfiler::add_prefix(const Request& request) {
  has_blocks_ = true;
  std::int64_t hits = 0;
  bool is_prefix = true;
  for (const std::uint64_t block : request.prefix_blocks) {
    const bool is_known = !known_blocks_.insert(block).second;
    is_prefix = is_prefix && is_known;
    if (is_prefix) ++hits;
  }
  // The last block of a prompt may be a partial one.
  hit_tokens_ += static_cast<double>(std::min(hits * kMooncakeBlockTokens, request.input_tokens));
}

void TraceProfiler::finish_times(TraceProfile& profile) const {
  profile.duration_s = end_s_;
  if (num_times_ < 2 || !(end_s_ > 0.0)) return;
  // n requests span n - 1 gaps.
  const double mean = static_cast<double>(num_times_ - 1) / end_s_;
  profile.mean_requests_per_s = mean;
  double peak = 0.0;
  std::int64_t in_window = 0;
  std::deque<std::pair<std::int64_t, std::int64_t>> window;
  const double window_s = std::min(kPeakWindow_s, std::max(1.0, std::ceil(end_s_)));
  double square_sum = 0.0;
  for (const auto& [second, count] : arrivals_in_second_) {
    window.emplace_back(second, count);
    in_window += count;
    while (static_cast<double>(second - window.front().first) >= window_s) {
      in_window -= window.front().second;
      window.pop_front();
    }
    peak = std::max(peak, static_cast<double>(in_window) / window_s);
    square_sum += static_cast<double>(count) * static_cast<double>(count);
  }
  profile.peak_requests_per_s = std::max(peak, mean);
  const double seconds = std::floor(end_s_) + 1.0;
  const double mean_count = static_cast<double>(num_times_) / seconds;
  profile.dispersion = (square_sum / seconds - mean_count * mean_count) / mean_count;
  if (num_gaps_ > 1 && gap_sum_ > 0.0) {
    const double gaps = static_cast<double>(num_gaps_);
    const double mean_gap = gap_sum_ / gaps;
    const double variance = std::max(0.0, gap_square_sum_ / gaps - mean_gap * mean_gap);
    profile.gap_cv = std::sqrt(variance) / mean_gap;
  }
  // Whole hours; a started last one would look quiet. Ten years of hours are more than a curve.
  const auto hours = static_cast<std::int64_t>(end_s_ / kHour_s);
  if (hours < 1 || hours > 10 * 366 * 24) return;
  std::vector<double> rates(static_cast<std::size_t>(hours), 0.0);
  for (const auto& [second, count] : arrivals_in_second_) {
    const auto hour = static_cast<std::size_t>(static_cast<double>(second) / kHour_s);
    if (hour < rates.size()) rates[hour] += static_cast<double>(count) / kHour_s;
  }
  const bool has_requests =
      std::any_of(rates.begin(), rates.end(), [](double rate) { return rate > 0.0; });
  if (has_requests) profile.hourly = RateCurve::steps(std::move(rates), kHour_s);
}

TraceProfile TraceProfiler::finish(const TraceInfo& info) const {
  TraceProfile profile;
  profile.info = info;
  profile.input_tokens = LengthDistribution::empirical(input_counts_);
  profile.output_tokens = LengthDistribution::empirical(output_counts_);
  if (num_times_ > 0) finish_times(profile);
  if (has_blocks_ && input_sum_ > 0.0) profile.prefix_hit_ratio = hit_tokens_ / input_sum_;
  return profile;
}

TraceProfile profile_trace(const std::filesystem::path& path, const TraceOptions& options) {
  TraceProfiler profiler;
  const TraceInfo info =
      visit_trace(path, options, [&](const Request& request) { profiler.add(request); });
  return profiler.finish(info);
}

}  // namespace moe::workload
