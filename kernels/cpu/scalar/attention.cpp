#include <algorithm>
#include <cmath>

#include "kernels/cpu/scalar/scalar.hpp"

namespace moe::kernels::scalar {
namespace {

float key_element(const AttentionArgs& args, std::int64_t key, std::int64_t dim) {
  if (args.k_panel_stride > 0) {
    return args
        .k[key / kKeyPanelKeys * args.k_panel_stride + dim * kKeyPanelKeys + key % kKeyPanelKeys];
  }
  return args.k[key * args.k_stride + dim];
}

void attend_one(const AttentionArgs& args, std::int64_t query, std::int64_t head) {
  const std::int64_t position = args.first_position + query;
  const std::int64_t begin =
      args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const float* q = args.q + query * args.q_stride + head * args.q_head_stride;
  float* out = args.out + query * args.out_stride + head * args.out_head_stride;
  float* weights = args.scratch;  // of keys begin .. position

  float max_logit = args.sinks != nullptr ? args.sinks[head] : -INFINITY;
  for (std::int64_t key = begin; key <= position; ++key) {
    float sum = 0.0F;
    for (std::int64_t d = 0; d < args.k_dim; ++d) {
      sum = std::fma(q[d], key_element(args, key, d), sum);
    }
    weights[key - begin] = sum * args.scale;
    max_logit = std::max(max_logit, weights[key - begin]);
  }

  // The sink takes its share of the probability and carries no value.
  float denominator = args.sinks != nullptr ? std::exp(args.sinks[head] - max_logit) : 0.0F;
  std::fill_n(out, args.v_dim, 0.0F);
  for (std::int64_t key = begin; key <= position; ++key) {
    const float weight = std::exp(weights[key - begin] - max_logit);
    denominator += weight;
    for (std::int64_t d = 0; d < args.v_dim; ++d) {
      out[d] = std::fma(weight, args.v[key * args.v_stride + d], out[d]);
    }
  }
  for (std::int64_t d = 0; d < args.v_dim; ++d) {
    out[d] /= denominator;
  }
}

}  // namespace

void attention(const AttentionArgs& args) noexcept {
  for (std::int64_t query = 0; query < args.num_queries; ++query) {
    for (std::int64_t head = 0; head < args.num_heads; ++head) {
      attend_one(args, query, head);
    }
  }
}

}  // namespace moe::kernels::scalar
