#pragma once

// Every buffer a pass needs, allocated once for the largest pass.

#include <cstdint>
#include <vector>

#include "lib/base/aligned_buffer.hpp"
#include "lib/engine/gemm.hpp"
#include "lib/engine/model_weights.hpp"
#include "lib/model/config.hpp"

namespace moe::engine {

// One item of attention work: consecutive queries of a run, and heads that share a kv head.
struct AttentionItem {
  std::int32_t run = 0;
  std::int32_t row = 0;      // of the first query, in the pass
  std::int32_t out_row = 0;  // where its result goes
  std::int32_t num_queries = 0;
  std::int32_t kv_head = 0;
  std::int32_t head_begin = 0;
  std::int32_t num_heads = 0;
};

struct WorkspaceShape {
  std::int64_t max_rows = 0;  // tokens of a pass
  std::int64_t max_runs = 0;  // sequences of a pass
  std::int64_t max_context = 0;
  std::int32_t top_k = 0;
  int num_threads = 1;
  bool has_bf16 = false;    // bf16 activations
  bool has_int8 = false;    // int8 activations
  bool is_unfused = false;  // MoePath::kUnfused
};

struct Workspace {
  ActivationBuffer residual;  // [rows, hidden]
  ActivationBuffer normed;    // [rows, hidden]
  ActivationBuffer block;     // [rows, hidden]: what a block adds to the residual

  ActivationBuffer input;     // [rows, AttentionWeights::input rows]
  ActivationBuffer output;    // [rows, heads * v_dim]: mean values, before the output projection
  ActivationBuffer q_a;       // MLA [rows, q_lora]
  ActivationBuffer q_b;       // MLA [rows, heads * (nope + rope)]
  ActivationBuffer q_nope;    // MLA [rows, heads * head_stride]
  ActivationBuffer q_latent;  // MLA [rows, heads * (kv_lora + rope)]
  ActivationBuffer latent;    // MLA [rows, heads * head_stride]: mean latents
  std::int64_t q_nope_stride = 0;  // of a head in q_nope
  std::int64_t latent_stride = 0;  // of a head in latent
  AlignedBuffer<float> cosines;    // [rows, rope dim / 2]
  AlignedBuffer<float> sines;
  std::vector<AttentionItem> attention_items;
  AlignedBuffer<float> attention_scratch;  // per thread
  std::int64_t attention_scratch_stride = 0;

  AlignedBuffer<float> router_logits;   // [rows, experts]
  AlignedBuffer<float> router_scratch;  // [rows, ...]
  std::int64_t router_scratch_stride = 0;
  AlignedBuffer<std::int32_t> expert_ids;  // [rows, top_k]
  AlignedBuffer<float> expert_weights;     // [rows, top_k]
  std::vector<std::int32_t> expert_begin;  // [experts + 1], into the rows sorted by expert
  std::vector<std::int32_t> expert_cursor;
  AlignedBuffer<std::int32_t> sorted_rows;  // [rows * top_k]: token row of each sorted row
  AlignedBuffer<std::int32_t> sorted_slot;  // [rows, top_k]: sorted row of each choice
  ActivationBuffer weighted;                // [rows * top_k, hidden]: weight_on_input only
  AlignedBytes glu;                         // outputs of gate and up, f32 or bf16
  AlignedBuffer<float> gate_up;             // unfused: [rows, gate and up of one block]
  AlignedBuffer<float> down;                // [rows * top_k + rows, hidden]
  Int8Buffer int8_x;                        // inputs of a product
  Int8Buffer int8_shared;  // the same of a shared expert whose weights are cut otherwise
  Int8Buffer int8_h;       // outputs of gate and up: all rows of glu
  std::vector<std::int64_t> int8_first_row;  // of each call, among the rows of int8_h
  std::vector<LinearCall> linear_calls;
  std::vector<GateUpCall> gate_up_calls;

  std::int64_t bytes = 0;
};

// Allocates, or with `is_dry` only counts the bytes.
[[nodiscard]] Workspace make_workspace(const model::ModelConfig& config,
                                       const ModelWeights& weights, const WorkspaceShape& shape,
                                       bool is_dry);

}  // namespace moe::engine
