// Grouped-query attention, multi-head attention being the case of one query head per key head.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/engine/layer_context.hpp"

namespace moe::engine {
namespace {

using model::AttentionConfig;
using model::QkNorm;

void norm_heads(const LayerContext& context, QkNorm kind, const std::vector<float>& weight,
                std::int64_t num_heads, float* x) {
  const std::int64_t dim = context.config.attention.head_dim;
  const auto eps = static_cast<float>(context.config.norm_eps);
  const kernels::KernelTable& kernels = *context.exec.kernels;
  switch (kind) {
    case QkNorm::kNone:
      return;
    case QkNorm::kWholeProjection:
      kernels.rms_norm(x, weight.data(), num_heads * dim, eps, x);
      return;
    case QkNorm::kPerHead:
    case QkNorm::kUnitAfterRope:
      for (std::int64_t head = 0; head < num_heads; ++head) {
        kernels.rms_norm(x + head * dim, weight.data(), dim, eps, x + head * dim);
      }
      return;
  }
}

void clip(double limit, std::int64_t count, float* x) {
  if (limit == 0.0) return;
  const auto bound = static_cast<float>(limit);
  for (std::int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -bound, bound);
}

// Layers without RoPE, at long positions: see AttentionConfig.
float query_temperature(const AttentionConfig& config, std::int64_t position) {
  const double steps = std::floor(static_cast<double>(position + 1) / config.temperature_floor);
  return static_cast<float>(1.0 + config.temperature_scale * std::log1p(steps));
}

void rotate_heads(const LayerContext& context, std::int64_t row, std::int64_t num_heads, float* x) {
  const AttentionConfig& config = context.config.attention;
  const std::int64_t half = config.rope.dim / 2;
  for (std::int64_t head = 0; head < num_heads; ++head) {
    rotate(config.rope.style, half, context.ws.cosines.data() + row * half,
           context.ws.sines.data() + row * half, x + head * config.head_dim);
  }
}

// Norm, clip and rotation of one row; its key and value go to the cache.
void finish_row(const LayerContext& context, std::int64_t row) {
  const AttentionConfig& config = context.config.attention;
  const AttentionWeights& weights = context.weights.attention;
  Workspace& ws = context.ws;
  float* const q = ws.input.f32(row);
  float* const k = q + weights.k_offset;
  float* const v = q + weights.v_offset;
  const std::int64_t dim = config.head_dim;
  const std::int64_t kv_size = config.num_kv_heads * dim;
  const bool has_rope = context.config.layers[static_cast<std::size_t>(context.layer)].has_rope;
  const bool norms_after_rope = config.qk_norm == QkNorm::kUnitAfterRope;
  if (!norms_after_rope) {
    norm_heads(context, config.qk_norm, weights.q_norm, config.num_heads, q);
    norm_heads(context, config.qk_norm, weights.k_norm, config.num_kv_heads, k);
  }
  clip(config.clip_qkv, config.num_heads * dim, q);
  clip(config.clip_qkv, kv_size, k);
  clip(config.clip_qkv, kv_size, v);
  const auto idx = static_cast<std::size_t>(row);
  const SequenceId sequence = context.pass.sequences[idx];
  const std::int64_t position = context.pass.positions[idx];
  if (has_rope) {
    rotate_heads(context, row, config.num_heads, q);
    rotate_heads(context, row, config.num_kv_heads, k);
    if (norms_after_rope) {
      norm_heads(context, config.qk_norm, weights.q_norm, config.num_heads, q);
      norm_heads(context, config.qk_norm, weights.k_norm, config.num_kv_heads, k);
    }
  } else if (config.temperature_scale != 0.0) {
    const float temperature = query_temperature(config, position);
    for (std::int64_t i = 0; i < config.num_heads * dim; ++i) q[i] *= temperature;
  }
  context.kv.set_key(sequence, context.layer, position, k, kv_size);
  std::copy_n(v, kv_size, context.kv.value(sequence, context.layer, position));
}

void attend_item(const LayerContext& context, const AttentionItem& item, float* scratch) {
  const AttentionConfig& config = context.config.attention;
  Workspace& ws = context.ws;
  const Run& run = context.pass.runs[static_cast<std::size_t>(item.run)];
  const std::int64_t dim = config.head_dim;
  kernels::AttentionArgs args;
  args.q = ws.input.f32(item.row) + item.head_begin * dim;
  args.q_stride = ws.input.stride();
  args.q_head_stride = dim;
  args.num_queries = item.num_queries;
  args.num_heads = item.num_heads;
  // Positions count from the first key that any query of the item sees.
  const model::LayerConfig& layer = context.config.layers[static_cast<std::size_t>(context.layer)];
  const std::int64_t position = context.pass.positions[static_cast<std::size_t>(item.row)];
  const std::int64_t first_key = layer.chunk > 0 ? position / layer.chunk * layer.chunk : 0;
  args.first_position = position - first_key;
  args.window = layer.window;
  args.k = context.kv.key(run.sequence, context.layer, first_key) +
           item.kv_head * context.kv.key_head_stride(dim);
  args.k_stride = context.kv.key_stride();
  args.k_panel_stride = context.kv.key_panel_stride();
  args.k_dim = dim;
  args.v = context.kv.value(run.sequence, context.layer, first_key) + item.kv_head * dim;
  args.v_stride = context.kv.value_stride();
  args.v_dim = dim;
  args.scale = static_cast<float>(config.softmax_scale);
  const std::vector<float>& sinks = context.weights.attention.sinks;
  args.sinks = sinks.empty() ? nullptr : sinks.data() + item.head_begin;
  args.out = ws.output.f32(item.out_row) + item.head_begin * dim;
  args.out_stride = ws.output.stride();
  args.out_head_stride = dim;
  args.scratch = scratch;
  context.exec.kernels->attention(args);
  for (std::int64_t query = 0; query < item.num_queries; ++query) {
    ws.output.round(*context.exec.kernels, item.out_row + query, item.head_begin * dim,
                    item.num_heads * dim);
  }
}

}  // namespace

void attend_gqa(const LayerContext& context) {
  const AttentionConfig& config = context.config.attention;
  Workspace& ws = context.ws;
  const std::int64_t num_rows = context.pass.num_rows();
  // Rows of a prompt write to cache lines of the same panels of keys.
  const bool has_prompt = num_rows > static_cast<std::int64_t>(context.pass.runs.size());
  for_each_row(
      context.exec, num_rows, 2 * context.weights.attention.input_rows,
      [&](std::int64_t row) { finish_row(context, row); }, has_prompt ? kernels::kKeyPanelKeys : 1);
  if (context.layer == 0) {
    observe(context.exec, "q_rope", 0, ws.input.f32(0), num_rows,
            std::int64_t{config.num_heads} * config.head_dim, ws.input.stride());
    observe(context.exec, "k_rope", 0, ws.input.f32(0) + context.weights.attention.k_offset,
            num_rows, std::int64_t{config.num_kv_heads} * config.head_dim, ws.input.stride());
  }
  const std::int64_t heads_per_kv = config.num_heads / config.num_kv_heads;
  plan_attention_items(context, heads_per_kv, heads_per_kv);
  run_attention_items(context, [&](const AttentionItem& item, float* scratch) {
    attend_item(context, item, scratch);
  });
  count_attention(context, config.head_dim, config.head_dim);
}

}  // namespace moe::engine
