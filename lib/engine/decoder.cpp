#include "lib/engine/decoder.hpp"

#include <algorithm>

#include "lib/engine/layer_context.hpp"

namespace moe::engine {
namespace {

void embed(DecoderState& state, const Pass& pass) {
  Exec& exec = state.exec;
  Workspace& ws = state.ws;
  const StageTimer timer(exec, Stage::kEmbed);
  const std::int64_t hidden = state.config->hidden_size;
  const auto multiplier = static_cast<float>(state.config->embedding_multiplier);
  const std::int64_t half = state.config->attention.rope.dim / 2;
  for_each_row(exec, pass.num_rows(), 4 * hidden, [&](std::int64_t row) {
    const auto idx = static_cast<std::size_t>(row);
    float* const out = ws.residual.f32(row);
    model::read_matrix_row(state.weights->embedding.view, pass.tokens[idx], out);
    if (multiplier != 1.0F) {
      for (std::int64_t i = 0; i < hidden; ++i) out[i] *= multiplier;
    }
  });
  for (const Run& run : pass.runs) {
    const RopeTable& table = run.rope_mode == RopeMode::kLong ? state.rope_long : state.rope_short;
    // A cosine and a sine cost about as much as moving twenty floats each.
    for_each_row(exec, run.num_rows, 40 * half, [&](std::int64_t i) {
      const std::int64_t row = run.first_row + i;
      rope_angles(table, run.first_position + i, ws.cosines.data() + row * half,
                  ws.sines.data() + row * half);
    });
  }
  observe(exec, "embed", -1, ws.residual.f32(0), pass.num_rows(), hidden, ws.residual.stride());
}

// Final norm and output matrix. `is_reduced`: the residual already holds the head rows alone.
void head(DecoderState& state, const Pass& pass, bool is_reduced, float* logits) {
  Exec& exec = state.exec;
  Workspace& ws = state.ws;
  const model::ModelConfig& config = *state.config;
  const StageTimer timer(exec, Stage::kHead);
  const std::int64_t num_rows =
      is_reduced ? static_cast<std::int64_t>(pass.head_rows.size()) : pass.num_rows();
  norm_residual(exec, config, state.weights->final_norm, num_rows, ws);
  observe(exec, "final_norm", -1, ws.normed.f32(0), num_rows, config.hidden_size,
          ws.normed.stride());
  const std::vector<float>& bias = state.weights->lm_head_bias;
  const LinearCall call{
      &state.weights->lm_head,
      with_int8(exec, state.weights->lm_head, ws.normed.view(), num_rows, ws.int8_x),
      is_reduced ? nullptr : pass.head_rows.data(),
      static_cast<std::int64_t>(pass.head_rows.size()),
      bias.empty() ? nullptr : bias.data(),
      logits,
      config.vocab_size};
  run_linear(exec, {&call, 1});
  if (config.logits_divisor != 1.0) {
    const auto divisor = static_cast<float>(config.logits_divisor);
    for_each_row(exec, call.num_rows, config.vocab_size, [&](std::int64_t row) {
      float* const values = logits + row * config.vocab_size;
      for (std::int64_t i = 0; i < config.vocab_size; ++i) values[i] /= divisor;
    });
  }
}

}  // namespace

void run_pass(DecoderState& state, const Pass& pass, float* logits) {
  Exec& exec = state.exec;
  const model::ModelConfig& config = *state.config;
  exec.stats->num_tokens += pass.num_rows();
  embed(state, pass);
  // Observers see every row of every layer.
  const bool is_reduced = exec.tensor_observer == nullptr && exec.routing_observer == nullptr;
  const int last = config.num_hidden_layers - 1;
  for (int layer = 0; layer <= last; ++layer) {
    const auto idx = static_cast<std::size_t>(layer);
    const LayerContext context{
        exec,        config,           state.weights->layers[idx], pass, state.ws, state.kv, layer,
        state.top_k, state.layer0_mla, is_reduced && layer == last};
    attention_block(context);
    const std::int64_t num_rows = context.num_out_rows();
    if (num_rows == 0) break;
    if (config.layers[idx].is_moe) {
      moe_block(context, num_rows);
    } else {
      dense_block(context, num_rows);
    }
    observe(exec, "hidden", layer, state.ws.residual.f32(0), num_rows, config.hidden_size,
            state.ws.residual.stride());
  }
  if (!pass.head_rows.empty()) head(state, pass, is_reduced, logits);
}

}  // namespace moe::engine
