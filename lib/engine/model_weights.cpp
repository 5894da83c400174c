#include "lib/engine/model_weights.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/engine/pack_part.hpp"
#include "lib/model/coded_matrix.hpp"

namespace moe::engine {
namespace {

using model::AttentionView;
using model::BoundModel;
using model::FfnView;
using model::LayerView;
using model::MatrixEncoding;
using model::ModelConfig;

void plan_ffn(const FfnView& view, PackPlan& plan, FfnWeights& weights) {
  weights.intermediate = view.gate.rows;
  plan.add({whole(view.gate), whole(view.up)}, PackOrder::kInterleaved, &weights.gate_up);
  plan.add({whole(view.down)}, PackOrder::kSequential, &weights.down);
}

void plan_input(const std::vector<MatrixSlice>& parts, PackPlan& plan, AttentionWeights& weights) {
  std::vector<std::vector<MatrixSlice>> runs = runs_of_one_format(parts);
  weights.input.resize(runs.size());
  for (std::size_t idx = 0; idx < runs.size(); ++idx) {
    plan.add(std::move(runs[idx]), PackOrder::kSequential, &weights.input[idx]);
    weights.input_rows += padded_rows(weights.input[idx].rows);
  }
}

void plan_gqa(const AttentionView& view, PackPlan& plan, AttentionWeights& weights) {
  plan_input({whole(view.q), whole(view.k), whole(view.v)}, plan, weights);
  weights.k_offset = padded_rows(view.q.rows);
  weights.v_offset = weights.k_offset + padded_rows(view.k.rows);
}

void plan_mla(const model::AttentionConfig& config, const AttentionView& view, PackPlan& plan,
              AttentionWeights& weights) {
  const model::MlaConfig& mla = config.mla;
  const model::MatrixView& q = mla.q_lora_rank > 0 ? view.q_a : view.q;
  plan_input({whole(q), whole(view.kv_a)}, plan, weights);
  weights.k_offset = padded_rows(q.rows);
  if (mla.q_lora_rank > 0) {
    plan.add({whole(view.q_b)}, PackOrder::kSequential, &weights.q_b);
  }
  const auto num_heads = static_cast<std::size_t>(config.num_heads);
  weights.w_uk.resize(num_heads);
  weights.w_uv.resize(num_heads);
  const std::int64_t nope = mla.qk_nope_head_dim;
  const std::int64_t head_rows = nope + mla.v_head_dim;
  for (std::size_t head = 0; head < num_heads; ++head) {
    const auto idx = static_cast<std::int64_t>(head);
    if (view.kv_b.empty()) {  // two matrices, that of the keys transposed already
      plan.add({{&view.k_b, idx * mla.kv_lora_rank, mla.kv_lora_rank, false}},
               PackOrder::kSequential, &weights.w_uk[head]);
      plan.add({{&view.v_b, idx * mla.v_head_dim, mla.v_head_dim, false}}, PackOrder::kSequential,
               &weights.w_uv[head]);
      continue;
    }
    const std::int64_t begin = idx * head_rows;
    plan.add({{&view.kv_b, begin, nope, true}}, PackOrder::kSequential, &weights.w_uk[head]);
    plan.add({{&view.kv_b, begin + nope, mla.v_head_dim, false}}, PackOrder::kSequential,
             &weights.w_uv[head]);
  }
}

void plan_layer(const ModelConfig& config, const LayerView& view, bool is_moe, PackPlan& plan,
                LayerWeights& weights) {
  if (config.attention.is_mla) {
    plan_mla(config.attention, view.attention, plan, weights.attention);
  } else {
    plan_gqa(view.attention, plan, weights.attention);
  }
  plan.add({whole(view.attention.o)}, PackOrder::kSequential, &weights.attention.output);
  if (!is_moe) {
    plan_ffn(view.dense, plan, weights.dense);
    return;
  }
  plan.add_f32({whole(view.router)}, &weights.router);
  weights.experts.resize(view.experts.size());
  for (std::size_t expert = 0; expert < view.experts.size(); ++expert) {
    plan_ffn(view.experts[expert], plan, weights.experts[expert]);
  }
  if (!view.shared.gate.empty()) plan_ffn(view.shared, plan, weights.shared);
}

std::vector<float> read_optional(const model::VectorView& view) {
  return view.empty() ? std::vector<float>{} : model::read_vector(view);
}

NormWeights read_norm(const model::NormView& view) {
  return {model::read_vector(view.weight), read_optional(view.bias)};
}

void read_ffn_biases(const FfnView& view, FfnWeights& weights) {
  weights.gate_bias = read_optional(view.gate_bias);
  weights.up_bias = read_optional(view.up_bias);
  weights.down_bias = read_optional(view.down_bias);
}

void read_attention_vectors(const AttentionView& view, AttentionWeights& weights) {
  const std::vector<float> q_bias = read_optional(view.q_bias);
  const std::vector<float> k_bias = read_optional(view.k_bias);
  const std::vector<float> v_bias = read_optional(view.v_bias);
  if (!q_bias.empty() || !k_bias.empty() || !v_bias.empty()) {
    weights.input_bias.assign(static_cast<std::size_t>(weights.input_rows), 0.0F);
    const auto place = [&](const std::vector<float>& bias, std::int64_t offset) {
      std::copy(bias.begin(), bias.end(), weights.input_bias.begin() + offset);
    };
    place(q_bias, 0);
    place(k_bias, weights.k_offset);
    place(v_bias, weights.v_offset);
  }
  weights.q_norm = read_optional(view.q_norm);
  weights.k_norm = read_optional(view.k_norm);
  weights.sinks = read_optional(view.sinks);
  weights.output_bias = read_optional(view.o_bias);
  weights.q_a_norm = read_optional(view.q_a_norm);
  weights.kv_a_norm = read_optional(view.kv_a_norm);
}

// A norm without weights is one of ones.
void set_unit_norms(const model::AttentionConfig& config, AttentionWeights& weights) {
  if (config.qk_norm != model::QkNorm::kUnitAfterRope) return;
  weights.q_norm.assign(static_cast<std::size_t>(config.head_dim), 1.0F);
  weights.k_norm = weights.q_norm;
}

void read_layer_vectors(const LayerView& view, LayerWeights& weights) {
  weights.input_norm = read_norm(view.input_norm);
  weights.post_attention_norm = read_norm(view.post_attention_norm);
  read_attention_vectors(view.attention, weights.attention);
  read_ffn_biases(view.dense, weights.dense);
  weights.router_bias = read_optional(view.router_bias);
  weights.correction_bias = read_optional(view.correction_bias);
  for (std::size_t expert = 0; expert < weights.experts.size(); ++expert) {
    read_ffn_biases(view.experts[expert], weights.experts[expert]);
  }
  read_ffn_biases(view.shared, weights.shared);
  weights.shared_gate = read_optional(view.shared_gate);
}

// Rows that can be copied as they are, with nothing of theirs elsewhere; others are widened.
bool embedding_is_copied(const BoundModel& model) {
  const model::MatrixView& view = model.embedding;
  if (view.encoding == MatrixEncoding::kPlain) return view.col_stride == 1;
  return model::has_byte_rows(view.encoding) && view.encoding != MatrixEncoding::kMxfp4 &&
         view.encoding != MatrixEncoding::kIntRows;
}

std::int64_t embedding_row_bytes(const BoundModel& model) {
  const model::MatrixView& view = model.embedding;
  if (!embedding_is_copied(model)) return view.cols * 4;
  if (view.encoding != MatrixEncoding::kPlain) return view.row_stride;
  return view.cols * model::dtype_bits(view.dtype) / 8;
}

// A copy in our own memory: lookups of a timed run must not wait for the file.
EmbeddingTable copy_embedding(const BoundModel& model, ThreadPool& pool) {
  const bool is_copied = embedding_is_copied(model);
  const bool is_plain = model.embedding.encoding == MatrixEncoding::kPlain;
  const std::int64_t row_bytes = embedding_row_bytes(model);
  EmbeddingTable table;
  table.bytes = AlignedBytes(embedding_bytes(model));
  const auto copy_row = [&](std::int64_t row) {
    std::byte* const out = table.bytes.data() + row * row_bytes;
    if (is_copied) {
      const std::int64_t source = row * model.embedding.row_stride *
                                  (is_plain ? model::dtype_bits(model.embedding.dtype) / 8 : 1);
      std::memcpy(out, model.embedding.data + source, static_cast<std::size_t>(row_bytes));
    } else {
      model::read_matrix_row(model.embedding, row, reinterpret_cast<float*>(out));
    }
  };
  constexpr std::int64_t kBlockBytes = std::int64_t{2} << 20;
  const std::int64_t num_rows = model.config.vocab_size;
  const std::int64_t block_rows = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
  pool.for_each(div_ceil(num_rows, block_rows), [&](std::int64_t block, int) {
    const std::int64_t end = std::min(num_rows, (block + 1) * block_rows);
    for (std::int64_t row = block * block_rows; row < end; ++row) copy_row(row);
  });
  if (model.is_mapped()) drop_pages(whole(model.embedding), false);
  table.view.name = model.embedding.name;
  table.view.encoding = is_copied ? model.embedding.encoding : MatrixEncoding::kPlain;
  table.view.dtype = is_copied ? model.embedding.dtype : model::Dtype::kF32;
  table.view.rows = model.config.vocab_size;
  table.view.cols = model.embedding.cols;
  table.view.data = table.bytes.data();
  table.view.row_stride = is_copied && !is_plain ? row_bytes : model.embedding.cols;
  return table;
}

}  // namespace

PackPlan plan_weights(const BoundModel& model, ModelWeights& weights) {
  MOE_CHECK(weights.layers.empty());
  PackPlan plan;
  weights.layers.resize(model.layers.size());
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    plan_layer(model.config, model.layers[layer], model.config.layers[layer].is_moe, plan,
               weights.layers[layer]);
  }
  plan.add({first_rows(model.lm_head, model.config.vocab_size)}, PackOrder::kSequential,
           &weights.lm_head);
  return plan;
}

std::int64_t embedding_bytes(const BoundModel& model) {
  return model.config.vocab_size * embedding_row_bytes(model);
}

void load_weights(const BoundModel& model, const PackPlan& plan, ThreadPool& pool,
                  Progress& progress, const Interrupt& interrupt, ModelWeights& weights) {
  weights.embedding = copy_embedding(model, pool);
  weights.final_norm = read_norm(model.final_norm);
  weights.lm_head_bias = read_optional(model.lm_head_bias);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    read_layer_vectors(model.layers[layer], weights.layers[layer]);
    set_unit_norms(model.config.attention, weights.layers[layer].attention);
  }
  plan.execute_into(weights.packed, pool, model.is_mapped(), progress, interrupt);
}

}  // namespace moe::engine
