#pragma once

// One pass of tokens through the model.

#include <cstdint>

#include "lib/engine/batch.hpp"
#include "lib/engine/exec.hpp"
#include "lib/engine/kv_cache.hpp"
#include "lib/engine/model_weights.hpp"
#include "lib/engine/rope.hpp"
#include "lib/engine/workspace.hpp"
#include "lib/model/config.hpp"

namespace moe::engine {

struct DecoderState {
  const model::ModelConfig* config = nullptr;
  const ModelWeights* weights = nullptr;
  const model::AttentionView* layer0_mla = nullptr;  // as stored, for observers
  std::int32_t top_k = 0;
  RopeTable rope_short;
  RopeTable rope_long;
  Exec exec;
  KvCache kv;
  Workspace ws;
};

// Runs the pass; logits of its head rows go to `logits`, one row of vocab_size after another.
void run_pass(DecoderState& state, const Pass& pass, float* logits);

}  // namespace moe::engine
