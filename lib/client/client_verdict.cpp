// Whether the client, not the server, set the figures.

#include <algorithm>

#include <fmt/format.h>

#include "lib/client/load_figures.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::client {
namespace {

// The nearest rank, whatever the sample's size: one run is judged, nothing is claimed beyond it.
std::optional<double> p99_of(std::vector<double> samples) {
  if (samples.empty()) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  return stats::percentile_of_sorted(samples, 0.99);
}

}  // namespace

ClientVerdict judge_client(const LoadResult& result, const ClientLimits& limits) {
  ClientVerdict verdict;
  verdict.send_lag_p99_s = p99_of(result.self.send_lag_s);
  verdict.receive_delay_p99_s = p99_of(result.self.receive_delay_s);
  if (result.self.wall_s > 0.0 && result.self.num_loops > 0) {
    verdict.cpu_share = result.self.cpu_s / result.self.wall_s / result.self.num_loops;
  }
  const auto blame = [&](const std::optional<double>& value, double limit,
                         const std::string& words) {
    if (!value || *value <= limit) return;
    verdict.is_bound = true;
    verdict.reasons.push_back(words);
  };
  blame(verdict.send_lag_p99_s, limits.send_lag_p99_s,
        fmt::format("requests left {:.1f} ms late (p99), more than {:.1f} ms",
                    verdict.send_lag_p99_s.value_or(0.0) * 1e3, limits.send_lag_p99_s * 1e3));
  blame(verdict.receive_delay_p99_s, limits.receive_delay_p99_s,
        fmt::format("bytes waited {:.1f} ms to be read (p99), more than {:.1f} ms",
                    verdict.receive_delay_p99_s.value_or(0.0) * 1e3,
                    limits.receive_delay_p99_s * 1e3));
  blame(verdict.cpu_share, limits.cpu_share,
        fmt::format("the loop used {:.0f} % of its core, more than {:.0f} %",
                    verdict.cpu_share.value_or(0.0) * 100.0, limits.cpu_share * 100.0));
  return verdict;
}

}  // namespace moe::client
