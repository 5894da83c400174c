// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) in the absorbed form:
// the cache holds the latent c of every token and its rotated key part. With k_nope = W_uk c and
// v = W_uv c,
//   q_nope . k_nope = (q_nope W_uk) . c   and   sum_j p_j v_j = W_uv (sum_j p_j c_j),
// so attention runs over the latents as one shared key/value head.

#include <algorithm>

#include "lib/engine/layer_context.hpp"

namespace moe::engine {
namespace {

using model::AttentionConfig;
using model::MlaConfig;

// The latent and the rotated key part of a row go to the cache; q_a is normed for q_b.
void store_latent(const LayerContext& context, std::int64_t row) {
  const AttentionConfig& config = context.config.attention;
  const MlaConfig& mla = config.mla;
  const AttentionWeights& weights = context.weights.attention;
  const kernels::KernelTable& kernels = *context.exec.kernels;
  Workspace& ws = context.ws;
  const auto eps = static_cast<float>(mla.latent_norm_eps);
  const auto idx = static_cast<std::size_t>(row);
  float* const input = ws.input.f32(row);
  float* const kv_a = input + weights.k_offset;
  float* const key =
      context.kv.key(context.pass.sequences[idx], context.layer, context.pass.positions[idx]);
  kernels.rms_norm(kv_a, weights.kv_a_norm.data(), mla.kv_lora_rank, eps, key);
  float* const rope_part = key + mla.kv_lora_rank;
  std::copy_n(kv_a + mla.kv_lora_rank, mla.qk_rope_head_dim, rope_part);
  const std::int64_t half = config.rope.dim / 2;
  rotate(config.rope.style, half, ws.cosines.data() + row * half, ws.sines.data() + row * half,
         rope_part);
  if (mla.q_lora_rank > 0) {
    kernels.rms_norm(input, weights.q_a_norm.data(), mla.q_lora_rank, eps, ws.q_a.f32(row));
    ws.q_a.round(kernels, row, 0, mla.q_lora_rank);
  }
}

// Splits the query heads of a row: the part without position goes to q_nope, the rotated part to
// its place behind the latent query.
void split_query(const LayerContext& context, const float* q, std::int64_t row) {
  const AttentionConfig& config = context.config.attention;
  const MlaConfig& mla = config.mla;
  Workspace& ws = context.ws;
  const std::int64_t latent_dim = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const std::int64_t half = config.rope.dim / 2;
  const float* const cosines = ws.cosines.data() + row * half;
  const float* const sines = ws.sines.data() + row * half;
  for (std::int64_t head = 0; head < config.num_heads; ++head) {
    const float* const q_head = q + head * config.head_dim;
    std::copy_n(q_head, mla.qk_nope_head_dim, ws.q_nope.f32(row) + head * ws.q_nope_stride);
    float* const rope_part = ws.q_latent.f32(row) + head * latent_dim + mla.kv_lora_rank;
    std::copy_n(q_head + mla.qk_nope_head_dim, mla.qk_rope_head_dim, rope_part);
    rotate(config.rope.style, half, cosines, sines, rope_part);
  }
  ws.q_nope.round(*context.exec.kernels, row, 0, config.num_heads * ws.q_nope_stride);
}

// One product per head: y_h = W_h x_h.
void run_per_head(const LayerContext& context, const std::vector<kernels::PackedMatrix>& weights,
                  std::int64_t num_rows, const Activations& x, std::int64_t x_head_stride, float* y,
                  std::int64_t y_head_stride, std::int64_t y_stride) {
  std::vector<LinearCall>& calls = context.ws.linear_calls;
  calls.clear();
  for (std::size_t head = 0; head < weights.size(); ++head) {
    const auto idx = static_cast<std::int64_t>(head);
    calls.push_back({&weights[head], x.at(idx * x_head_stride), nullptr, num_rows, nullptr,
                     y + idx * y_head_stride, y_stride});
  }
  run_linear(context.exec, calls);
}

void attend_latent_item(const LayerContext& context, const AttentionItem& item, float* scratch) {
  const AttentionConfig& config = context.config.attention;
  const MlaConfig& mla = config.mla;
  Workspace& ws = context.ws;
  const Run& run = context.pass.runs[static_cast<std::size_t>(item.run)];
  const std::int64_t latent_dim = mla.kv_lora_rank + mla.qk_rope_head_dim;
  kernels::AttentionArgs args;
  args.q = ws.q_latent.f32(item.row) + item.head_begin * latent_dim;
  args.q_stride = ws.q_latent.stride();
  args.q_head_stride = latent_dim;
  args.num_queries = item.num_queries;
  args.num_heads = item.num_heads;
  args.first_position = context.pass.positions[static_cast<std::size_t>(item.row)];
  args.window = context.config.layers[static_cast<std::size_t>(context.layer)].window;
  args.k = context.kv.key(run.sequence, context.layer, 0);
  args.k_stride = context.kv.key_stride();
  args.k_dim = latent_dim;
  args.v = context.kv.value(run.sequence, context.layer, 0);
  args.v_stride = context.kv.value_stride();
  args.v_dim = mla.kv_lora_rank;
  args.scale = static_cast<float>(config.softmax_scale);
  const std::vector<float>& sinks = context.weights.attention.sinks;
  args.sinks = sinks.empty() ? nullptr : sinks.data() + item.head_begin;
  args.out = ws.latent.f32(item.out_row) + item.head_begin * ws.latent_stride;
  args.out_stride = ws.latent.stride();
  args.out_head_stride = ws.latent_stride;
  args.scratch = scratch;
  context.exec.kernels->attention(args);
  for (std::int64_t query = 0; query < item.num_queries; ++query) {
    ws.latent.round(*context.exec.kernels, item.out_row + query, item.head_begin * ws.latent_stride,
                    item.num_heads * ws.latent_stride);
  }
}

// Row i of the key projection of a head, [kv_lora].
void read_key_row(const LayerContext& context, std::int64_t head, std::int64_t i, float* out) {
  const MlaConfig& mla = context.config.attention.mla;
  const model::AttentionView& stored = *context.mla;
  if (!stored.kv_b.empty()) {
    model::read_matrix_row(stored.kv_b, head * (mla.qk_nope_head_dim + mla.v_head_dim) + i, out);
    return;
  }
  std::vector<float> row(static_cast<std::size_t>(mla.qk_nope_head_dim));
  for (std::int64_t c = 0; c < mla.kv_lora_rank; ++c) {
    model::read_matrix_row(stored.k_b, head * mla.kv_lora_rank + c, row.data());
    out[c] = row[static_cast<std::size_t>(i)];
  }
}

// Queries and keys as the unabsorbed form has them: [nope | rope] per head.
void observe_heads(const LayerContext& context) {
  const AttentionConfig& config = context.config.attention;
  const MlaConfig& mla = config.mla;
  Workspace& ws = context.ws;
  const std::int64_t nope = mla.qk_nope_head_dim;
  const std::int64_t lora = mla.kv_lora_rank;
  const std::int64_t num_rows = context.pass.num_rows();
  const std::int64_t cols = std::int64_t{config.num_heads} * config.head_dim;
  std::vector<float> q(static_cast<std::size_t>(num_rows * cols));
  std::vector<float> k(q.size());
  std::vector<float> w_uk(static_cast<std::size_t>(lora));
  for (std::int64_t head = 0; head < config.num_heads; ++head) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const auto idx = static_cast<std::size_t>(row);
      const float* const key =
          context.kv.key(context.pass.sequences[idx], context.layer, context.pass.positions[idx]);
      const std::int64_t at = row * cols + head * config.head_dim;
      std::copy_n(ws.q_nope.f32(row) + head * ws.q_nope_stride, nope, q.data() + at);
      std::copy_n(ws.q_latent.f32(row) + head * (lora + mla.qk_rope_head_dim) + lora,
                  mla.qk_rope_head_dim, q.data() + at + nope);
      std::copy_n(key + lora, mla.qk_rope_head_dim, k.data() + at + nope);
    }
    for (std::int64_t i = 0; i < nope; ++i) {
      read_key_row(context, head, i, w_uk.data());
      for (std::int64_t row = 0; row < num_rows; ++row) {
        const auto idx = static_cast<std::size_t>(row);
        const float* const key =
            context.kv.key(context.pass.sequences[idx], context.layer, context.pass.positions[idx]);
        k[static_cast<std::size_t>(row * cols + head * config.head_dim + i)] =
            context.exec.kernels->dot(w_uk.data(), key, lora);
      }
    }
  }
  observe(context.exec, "q_rope", 0, q.data(), num_rows, cols, cols);
  observe(context.exec, "k_rope", 0, k.data(), num_rows, cols, cols);
}

}  // namespace

void attend_mla(const LayerContext& context) {
  const AttentionConfig& config = context.config.attention;
  const MlaConfig& mla = config.mla;
  const AttentionWeights& weights = context.weights.attention;
  Exec& exec = context.exec;
  Workspace& ws = context.ws;
  const std::int64_t num_rows = context.pass.num_rows();
  const std::int64_t latent_dim = mla.kv_lora_rank + mla.qk_rope_head_dim;
  for_each_row(exec, num_rows, 2 * weights.input_rows,
               [&](std::int64_t row) { store_latent(context, row); });
  const bool has_q_b = mla.q_lora_rank > 0;
  if (has_q_b) {
    const LinearCall q_b{
        &weights.q_b,   with_int8(exec, weights.q_b, ws.q_a.view(), num_rows, ws.int8_x),
        nullptr,        num_rows,
        nullptr,        ws.q_b.f32(0),
        ws.q_b.stride()};
    run_linear(exec, {&q_b, 1});
  }
  for_each_row(exec, num_rows, std::int64_t{2} * config.num_heads * config.head_dim,
               [&](std::int64_t row) {
                 split_query(context, has_q_b ? ws.q_b.f32(row) : ws.input.f32(row), row);
               });
  run_per_head(context, weights.w_uk, num_rows, ws.q_nope.view(), ws.q_nope_stride,
               ws.q_latent.f32(0), latent_dim, ws.q_latent.stride());
  if (context.layer == 0 && exec.tensor_observer != nullptr) observe_heads(context);

  // All heads read the same latents: large groups re-read them least, but every thread needs work.
  const std::int64_t num_out = context.num_out_rows();
  const std::int64_t groups =
      div_ceil(exec.pool->num_threads(), std::max<std::int64_t>(1, num_out));
  const std::int64_t heads_per_item =
      std::clamp<std::int64_t>(div_ceil(config.num_heads, groups), 1, 16);
  plan_attention_items(context, config.num_heads, heads_per_item);
  run_attention_items(context, [&](const AttentionItem& item, float* scratch) {
    attend_latent_item(context, item, scratch);
  });
  count_attention(context, latent_dim, mla.kv_lora_rank);

  run_per_head(context, weights.w_uv, num_out, ws.latent.view(), ws.latent_stride, ws.output.f32(0),
               mla.v_head_dim, ws.output.stride());
  if (ws.output.has_bf16()) {
    const std::int64_t cols = std::int64_t{config.num_heads} * mla.v_head_dim;
    for_each_row(exec, num_out, cols,
                 [&](std::int64_t row) { ws.output.round(*exec.kernels, row, 0, cols); });
  }
}

}  // namespace moe::engine
