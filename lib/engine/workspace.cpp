#include "lib/engine/workspace.hpp"

#include <algorithm>

#include "lib/engine/router.hpp"

namespace moe::engine {
namespace {

class Allocator {
 public:
  Allocator(bool is_dry, bool has_bf16) : is_dry_(is_dry), has_bf16_(has_bf16) {}

  ActivationBuffer activations(std::int64_t rows, std::int64_t cols, bool may_be_bf16) {
    const bool has_bf16 = may_be_bf16 && has_bf16_;
    bytes_ += ActivationBuffer::bytes(rows, cols, has_bf16);
    return is_dry_ ? ActivationBuffer() : ActivationBuffer(rows, cols, has_bf16);
  }
  template <typename Element>
  AlignedBuffer<Element> buffer(std::int64_t count) {
    bytes_ += count * static_cast<std::int64_t>(sizeof(Element));
    return is_dry_ ? AlignedBuffer<Element>() : AlignedBuffer<Element>(count);
  }
  AlignedBytes raw(std::int64_t bytes) {
    bytes_ += bytes;
    return is_dry_ ? AlignedBytes() : AlignedBytes(bytes);
  }
  Int8Buffer int8(std::int64_t rows, const Int8Buffer::RowSize& row) {
    bytes_ += rows * row.bytes();
    return is_dry_ ? Int8Buffer() : Int8Buffer(rows, row);
  }
  template <typename Element>
  void reserve(std::vector<Element>& vector, std::int64_t count) {
    bytes_ += count * static_cast<std::int64_t>(sizeof(Element));
    if (!is_dry_) vector.reserve(static_cast<std::size_t>(count));
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  bool is_dry_;
  bool has_bf16_;
  std::int64_t bytes_ = 0;
};

void make_attention(const model::ModelConfig& config, const ModelWeights& weights,
                    const WorkspaceShape& shape, Allocator& make, Workspace& ws) {
  const model::AttentionConfig& attention = config.attention;
  const model::MlaConfig& mla = attention.mla;
  const std::int64_t rows = shape.max_rows;
  const std::int64_t heads = attention.num_heads;
  const std::int64_t v_dim = attention.is_mla ? mla.v_head_dim : attention.head_dim;
  ws.input = make.activations(rows, weights.layers.front().attention.input_rows, false);
  ws.output = make.activations(rows, heads * v_dim, true);
  std::int64_t kernel_v_dim = v_dim;
  if (attention.is_mla) {
    ws.q_nope_stride = ActivationBuffer::padded_cols(mla.qk_nope_head_dim);
    ws.latent_stride = ActivationBuffer::padded_cols(mla.kv_lora_rank);
    if (mla.q_lora_rank > 0) {
      ws.q_a = make.activations(rows, mla.q_lora_rank, true);
      ws.q_b = make.activations(rows, heads * attention.head_dim, false);
    }
    ws.q_nope = make.activations(rows, heads * ws.q_nope_stride, true);
    ws.q_latent = make.activations(rows, heads * (mla.kv_lora_rank + mla.qk_rope_head_dim), false);
    ws.latent = make.activations(rows, heads * ws.latent_stride, true);
    kernel_v_dim = mla.kv_lora_rank;
  }
  ws.cosines = make.buffer<float>(rows * (attention.rope.dim / 2));
  ws.sines = make.buffer<float>(rows * (attention.rope.dim / 2));
  make.reserve(ws.attention_items, rows * heads);
  ws.attention_scratch_stride =
      align_up(kernels::attention_scratch_floats(heads, shape.max_context - 1, kernel_v_dim), 32);
  ws.attention_scratch = make.buffer<float>(ws.attention_scratch_stride * shape.num_threads);
}

void make_ffn(const model::ModelConfig& config, const WorkspaceShape& shape, Allocator& make,
              Workspace& ws) {
  const std::int64_t rows = shape.max_rows;
  const std::int64_t experts = config.moe.num_experts;
  const std::int64_t chosen = rows * shape.top_k;
  const auto padded = [](std::int64_t cols) { return ActivationBuffer::padded_cols(cols); };
  const bool has_dense = std::any_of(config.layers.begin(), config.layers.end(),
                                     [](const model::LayerConfig& layer) { return !layer.is_moe; });
  std::int64_t glu_floats = has_dense ? rows * padded(config.intermediate_size) : 0;
  std::int64_t down_rows = has_dense ? rows : 0;
  if (experts > 0) {
    ws.router_scratch_stride = align_up(route_scratch_floats(experts), 16);
    ws.router_logits = make.buffer<float>(rows * experts);
    ws.router_scratch = make.buffer<float>(rows * ws.router_scratch_stride);
    ws.expert_ids = make.buffer<std::int32_t>(chosen);
    ws.expert_weights = make.buffer<float>(chosen);
    ws.sorted_rows = make.buffer<std::int32_t>(chosen);
    ws.sorted_slot = make.buffer<std::int32_t>(chosen);
    if (shape.is_unfused) {
      const std::int64_t widest = std::max<std::int64_t>(config.moe.expert_intermediate_size,
                                                         config.moe.shared_intermediate_size);
      ws.gate_up = make.buffer<float>(rows * 2 * padded_rows(widest));
    }
    if (config.moe.weight_on_input) {
      ws.weighted = make.activations(chosen, config.hidden_size, true);
    }
    ws.expert_begin.resize(static_cast<std::size_t>(experts + 1));
    ws.expert_cursor.resize(static_cast<std::size_t>(experts));
    const std::int64_t shared = config.moe.shared_intermediate_size;
    glu_floats = std::max(glu_floats, chosen * padded(config.moe.expert_intermediate_size) +
                                          (shared > 0 ? rows * padded(shared) : 0));
    down_rows = std::max(down_rows, chosen + (shared > 0 ? rows : 0));
  }
  ws.glu = make.raw(glu_floats * 4);
  ws.down = make.buffer<float>(down_rows * config.hidden_size);
}

// Rows of int8 codes for whatever matrix reads them.
void make_int8(const model::ModelConfig& config, const ModelWeights& weights,
               const WorkspaceShape& shape, Allocator& make, Workspace& ws) {
  Int8Buffer::RowSize x;
  Int8Buffer::RowSize shared;
  Int8Buffer::RowSize h;
  const auto cover_ffn = [&](const FfnWeights& ffn, Int8Buffer::RowSize& input) {
    input.cover(ffn.gate_up);
    h.cover(ffn.down);
  };
  x.cover(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) {
    for (const kernels::PackedMatrix& input : layer.attention.input) x.cover(input);
    x.cover(layer.attention.output);
    x.cover(layer.attention.q_b);
    cover_ffn(layer.dense, x);
    for (const FfnWeights& expert : layer.experts) cover_ffn(expert, x);
    cover_ffn(layer.shared, shared);
  }
  const std::int64_t chosen = shape.max_rows * shape.top_k;
  ws.int8_x =
      make.int8(config.moe.weight_on_input ? std::max(chosen, shape.max_rows) : shape.max_rows, x);
  ws.int8_shared = make.int8(shape.max_rows, shared);
  ws.int8_h = make.int8(chosen + shape.max_rows, h);
  make.reserve(ws.int8_first_row, config.moe.num_experts + 1);
}

}  // namespace

Workspace make_workspace(const model::ModelConfig& config, const ModelWeights& weights,
                         const WorkspaceShape& shape, bool is_dry) {
  Workspace ws;
  Allocator make(is_dry, shape.has_bf16);
  const std::int64_t rows = shape.max_rows;
  ws.residual = make.activations(rows, config.hidden_size, false);
  ws.normed = make.activations(rows, config.hidden_size, true);
  ws.block = make.activations(rows, config.hidden_size, false);
  make_attention(config, weights, shape, make, ws);
  make_ffn(config, shape, make, ws);
  if (shape.has_int8) make_int8(config, weights, shape, make, ws);
  const std::int64_t max_calls =
      std::max<std::int64_t>(config.moe.num_experts + 1, config.attention.num_heads);
  make.reserve(ws.linear_calls, max_calls);
  make.reserve(ws.gate_up_calls, max_calls);
  ws.bytes = make.bytes();
  return ws;
}

}  // namespace moe::engine
