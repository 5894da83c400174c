#include "lib/topology/time_laws.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/topology/volumes.hpp"

namespace moe::topology {
namespace {

MoeTraffic traffic_of(const MoePoint& point) {
  MoeTraffic traffic;
  traffic.tokens_per_rank = point.tokens_per_rank;
  traffic.hidden = point.hidden;
  traffic.top_k = point.top_k;
  traffic.num_experts = point.num_experts;
  traffic.num_ranks = point.num_ranks;
  // Combine sends 16 bits back whatever came in.
  traffic.element_bytes =
      point.phase.starts_with("combine") ? 2.0 : element_bytes(point.dtype).value_or(2.0);
  return traffic;
}

double knot_ratio(const std::vector<Knot>& knots, double bytes) {
  if (knots.empty()) return 1.0;
  if (bytes <= knots.front().bytes) return knots.front().ratio;
  if (bytes >= knots.back().bytes) return knots.back().ratio;
  const auto above = std::lower_bound(knots.begin(), knots.end(), bytes,
                                      [](const Knot& knot, double b) { return knot.bytes < b; });
  const auto below = above - 1;
  const double share = std::log(bytes / below->bytes) / std::log(above->bytes / below->bytes);
  return std::exp(std::log(below->ratio) * (1.0 - share) + std::log(above->ratio) * share);
}

}  // namespace

double SizeLaw::time_s(double volume_bytes) const {
  return alpha_s + s_per_byte * volume_bytes + s_per_sqrt_byte * std::sqrt(volume_bytes);
}

double volume_factor(const std::string& op, std::int64_t num_ranks) {
  const double n = static_cast<double>(num_ranks);
  return (op == "all_reduce" ? 2.0 : 1.0) * (n - 1.0) / n;
}

double CollectiveSeries::time_s(double bytes) const {
  return law.time_s(bytes * volume_factor(op, num_ranks)) * knot_ratio(knots, bytes);
}

double moe_term(const std::string& name, const MoePoint& point) {
  const MoeTraffic traffic = traffic_of(point);
  const double tokens = static_cast<double>(point.tokens_per_rank);
  const double selections = tokens * static_cast<double>(point.top_k);
  const double elements = tokens * static_cast<double>(point.hidden);
  const double sms = static_cast<double>(std::max<std::int64_t>(point.num_sms, 1));
  if (name == "call") return 1.0;
  if (name == "selection_bytes") return remote_selection_bytes(traffic);
  if (name == "rank_bytes") return remote_rank_bytes(traffic);
  if (name == "sqrt_selection_bytes") return std::sqrt(remote_selection_bytes(traffic));
  if (name == "sqrt_rank_bytes") return std::sqrt(remote_rank_bytes(traffic));
  if (name == "tokens") return tokens;
  if (name == "sqrt_tokens") return std::sqrt(tokens);
  if (name == "selections") return selections;
  if (name == "elements") return elements;
  if (name == "experts") return static_cast<double>(point.num_experts);
  if (name == "selection_bytes_per_sm") return remote_selection_bytes(traffic) / sms;
  if (name == "rank_bytes_per_sm") return remote_rank_bytes(traffic) / sms;
  if (name == "sqrt_rank_bytes_per_sm") return std::sqrt(remote_rank_bytes(traffic) / sms);
  if (name == "selections_per_sm") return selections / sms;
  if (name == "elements_per_sm") return elements / sms;
  if (name == "inverse_sms") return 1.0 / sms;
  if (name == "sms") return sms;
  throw Error(ErrorCode::kInput, fmt::format("no term \"{}\" of a dispatch or combine time", name));
}

double MoeSeries::time_s(const MoePoint& point) const {
  double time = 0.0;
  for (const auto& [name, seconds] : terms) time += seconds * moe_term(name, point);
  return time;
}

}  // namespace moe::topology
