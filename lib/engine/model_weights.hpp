#pragma once

// All weights of a model in the form the engine reads: big matrices packed, small vectors in f32.

#include <cstdint>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/engine/pack_plan.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::engine {

struct NormWeights {
  std::vector<float> weight;
  std::vector<float> bias;  // empty for RMS
};

// One gated feed-forward block: an expert, a shared expert or a dense MLP.
struct FfnWeights {
  kernels::PackedMatrix gate_up;  // interleaved panels
  kernels::PackedMatrix down;
  std::int64_t intermediate = 0;
  std::vector<float> gate_bias, up_bias, down_bias;  // empty: none
};

struct AttentionWeights {
  // The first product on the normed hidden state, parts padded to whole panels. GQA: q, k, v. MLA:
  // q (or q_a), kv_a. One matrix, or one for each run of parts of the same format. Offsets are
  // output rows.
  std::vector<kernels::PackedMatrix> input;
  std::int64_t input_rows = 0;
  std::int64_t k_offset = 0;  // MLA: of kv_a
  std::int64_t v_offset = 0;
  std::vector<float> input_bias;  // padded like the rows, or empty
  std::vector<float> q_norm, k_norm;
  std::vector<float> sinks;
  kernels::PackedMatrix output;
  std::vector<float> output_bias;
  // MLA, absorbed: scores against the latent c need q W_uk, and the weighted mean of latents
  // becomes values by W_uv.
  std::vector<float> q_a_norm, kv_a_norm;
  kernels::PackedMatrix q_b;                // empty without q compression
  std::vector<kernels::PackedMatrix> w_uk;  // per head [kv_lora, nope]
  std::vector<kernels::PackedMatrix> w_uv;  // per head [v, kv_lora]
};

struct LayerWeights {
  NormWeights input_norm;
  NormWeights post_attention_norm;
  AttentionWeights attention;
  FfnWeights dense;
  kernels::PackedMatrix router;  // f32
  std::vector<float> router_bias;
  std::vector<float> correction_bias;
  std::vector<FfnWeights> experts;
  FfnWeights shared;
  std::vector<float> shared_gate;
};

// Token embeddings in the dtype of the file, rows one after another.
struct EmbeddingTable {
  AlignedBytes bytes;
  model::MatrixView view;  // of `bytes`
};

// The layout of the packed block is made first, from shapes alone; load_weights() then fills it.
// Descriptors are the targets of the plan, so a ModelWeights stays where it is until it is loaded.
struct ModelWeights {
  ModelWeights() = default;
  ModelWeights(const ModelWeights&) = delete;
  ModelWeights& operator=(const ModelWeights&) = delete;

  EmbeddingTable embedding;
  NormWeights final_norm;
  kernels::PackedMatrix lm_head;
  std::vector<float> lm_head_bias;
  std::vector<LayerWeights> layers;
  AlignedBytes packed;
};

// Descriptors without data. `weights` must be empty.
[[nodiscard]] PackPlan plan_weights(const model::BoundModel& model, ModelWeights& weights);

// Bytes of the embedding table that load_weights() will make.
[[nodiscard]] std::int64_t embedding_bytes(const model::BoundModel& model);

// Packs, and reads the small vectors. `weights.packed` has the bytes of the plan, not yet touched.
// Throws as PackPlan::execute.
void load_weights(const model::BoundModel& model, const PackPlan& plan, ThreadPool& pool,
                  Progress& progress, const Interrupt& interrupt, ModelWeights& weights);

}  // namespace moe::engine
