#pragma once

// What a trace says about load: lengths, rates, burstiness, prefix reuse. One pass, memory that
// does not grow with the number of requests except for the times and prefixes that differ.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_set>

#include "lib/workload/arrivals.hpp"
#include "lib/workload/length_distribution.hpp"
#include "lib/workload/trace.hpp"

namespace moe::workload {

struct TraceProfile {
  TraceInfo info;
  LengthDistribution input_tokens = LengthDistribution::fixed(1);
  LengthDistribution output_tokens = LengthDistribution::fixed(1);

  // Of traces with times only.
  double duration_s = 0.0;
  std::optional<double> mean_requests_per_s;
  // Of the busiest 60 s; the whole trace when it is shorter.
  std::optional<double> peak_requests_per_s;
  // Variance over mean of the arrivals in a second: 1 is Poisson, more is burstier.
  std::optional<double> dispersion;
  // Standard deviation over mean of the gaps between requests that follow each other.
  std::optional<double> gap_cv;
  // Rate an hour by hour; absent for less than an hour.
  std::optional<RateCurve> hourly;

  // Share of prompt tokens that an unbounded prefix cache would have held; absent without block
  // ids. An upper bound: a real cache forgets.
  std::optional<double> prefix_hit_ratio;
};

// Collects from any visit.
class TraceProfiler {
 public:
  void add(const Request& request);
  [[nodiscard]] TraceProfile finish(const TraceInfo& info) const;

 private:
  void add_time(double arrival_s);
  void add_prefix(const Request& request);
  void finish_times(TraceProfile& profile) const;

  std::map<std::int64_t, std::int64_t> input_counts_;
  std::map<std::int64_t, std::int64_t> output_counts_;
  std::map<std::int64_t, std::int64_t> arrivals_in_second_;
  double last_s_ = 0.0;
  double end_s_ = 0.0;
  std::int64_t num_times_ = 0;
  std::int64_t num_gaps_ = 0;
  double gap_sum_ = 0.0;
  double gap_square_sum_ = 0.0;
  std::unordered_set<std::uint64_t> known_blocks_;
  bool has_blocks_ = false;
  double input_sum_ = 0.0;
  double hit_tokens_ = 0.0;
};

[[nodiscard]] TraceProfile profile_trace(const std::filesystem::path& path,
                                         const TraceOptions& options);

}  // namespace moe::workload
