#include "lib/topology/volumes.hpp"

#include <cmath>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::topology {
std::optional<double> element_bytes(std::string_view dtype) {
  if (dtype == "bfloat16" || dtype == "half" || dtype == "float16" || dtype == "default")
    return 2.0;
  if (dtype == "float" || dtype == "float32") return 4.0;
  if (dtype == "fp8") return 1.0 + 4.0 / 128.0;
  if (dtype == "mxfp8") return 1.0 + 1.0 / 32.0;
  if (dtype == "int8") return 1.0;
  if (dtype == "nvfp4" || dtype == "fp4") return 0.5 + 1.0 / 16.0;
  return std::nullopt;
}

double logical_bytes(const MoeTraffic& traffic) {
  return as_real(traffic.tokens_per_rank) * as_real(traffic.top_k) * as_real(traffic.hidden) *
         traffic.element_bytes;
}

double logical_bytes_per_s(double bytes_per_copy, std::int64_t tokens,
                           std::int64_t copies_per_token, double time_s) {
  MOE_CHECK(time_s > 0.0);
  return bytes_per_copy * as_real(tokens) * as_real(copies_per_token) / time_s;
}

double remote_selection_share(std::int64_t num_ranks) {
  MOE_CHECK(num_ranks >= 1);
  return as_real(num_ranks - 1) / as_real(num_ranks);
}

double remote_selection_bytes(const MoeTraffic& traffic) {
  return logical_bytes(traffic) * remote_selection_share(traffic.num_ranks);
}

double remote_rank_bytes(const MoeTraffic& traffic) {
  const double ranks = as_real(traffic.num_ranks);
  const double distinct = ranks * (1.0 - std::pow(1.0 - 1.0 / ranks, as_real(traffic.top_k)));
  return as_real(traffic.tokens_per_rank) * distinct * as_real(traffic.hidden) *
         traffic.element_bytes * remote_selection_share(traffic.num_ranks);
}

double distinct_groups(std::int64_t num_experts, std::int64_t num_groups, std::int64_t top_k) {
  MOE_CHECK(num_groups >= 1 && num_experts >= num_groups && top_k >= 0 && top_k <= num_experts);
  const double others = as_real(num_experts) * (1.0 - 1.0 / as_real(num_groups));
  // Product of (others - i) / (experts - i): no selection falls into one given group.
  double none = 1.0;
  for (std::int64_t i = 0; i < top_k; ++i) {
    const double left = others - as_real(i);
    if (left <= 0.0) {
      none = 0.0;
      break;
    }
    none *= left / (as_real(num_experts) - as_real(i));
  }
  return as_real(num_groups) * (1.0 - none);
}

}  // namespace moe::topology
