#pragma once

// The traffic a plan or a benchmark is for, from JSON: numbers, distributions, or a recorded trace
// with single figures put in place of its own.
//
//   "input_tokens":  2000 | {"uniform": [1600, 2000]} | {"mean": 2000, "cv": 0.8, "max": 32768}
//                    | {"p50": 1200, "p99": 9000, "max": 32768}
//   "arrivals":      {"requests_per_s": 50, "process": "poisson", "gap_cv": 1.4,
//                     "peak_over_mean": 1.6}
//                    | {"hourly_requests_per_s": [3, 2, ...]} | {"concurrency": 64}
//   "trace":         {"path": "azure.csv", "format": "azure", "rate_scale": 2.0}

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/json/read.hpp"
#include "lib/workload/arrivals.hpp"
#include "lib/workload/length_distribution.hpp"
#include "lib/workload/trace_profile.hpp"

namespace moe::workload {

struct Workload {
  LengthDistribution input_tokens = LengthDistribution::fixed(1);
  LengthDistribution output_tokens = LengthDistribution::fixed(1);
  // Open loop: a curve. Closed loop: so many clients that each wait for their answer. Exactly one.
  std::optional<RateCurve> arrivals;
  ArrivalProcess process;
  std::optional<std::int64_t> concurrency;
  // Share of prompt tokens found in a prefix cache.
  double prefix_hit_ratio = 0.0;
  // Where each came from, for the reader: "given", "trace azure.csv".
  std::string lengths_source;
  std::string arrivals_source;
  std::string prefix_source;
  std::optional<TraceProfile> trace;
  std::string trace_path;

  // Without closed loop: requests a second on average and in the busiest step.
  [[nodiscard]] double mean_requests_per_s() const;
  [[nodiscard]] double peak_requests_per_s() const;
};

// `where` names the document; a trace's path is relative to `directory`. Throws Error(kInput).
[[nodiscard]] Workload parse_workload(const json::Json& document, const std::string& where,
                                      const std::filesystem::path& directory);

// One length distribution in the forms above.
[[nodiscard]] LengthDistribution parse_lengths(const json::Json& value, const std::string& where);

}  // namespace moe::workload
