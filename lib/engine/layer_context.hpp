#pragma once

// What the blocks of one layer work on, and what they share.

#include <cstdint>
#include <string_view>

#include "lib/engine/batch.hpp"
#include "lib/engine/exec.hpp"
#include "lib/engine/kv_cache.hpp"
#include "lib/engine/model_weights.hpp"
#include "lib/engine/workspace.hpp"
#include "lib/model/config.hpp"

namespace moe::engine {

struct LayerContext {
  Exec& exec;
  const model::ModelConfig& config;
  const LayerWeights& weights;
  const Pass& pass;
  Workspace& ws;
  KvCache& kv;
  int layer = 0;
  std::int32_t top_k = 0;
  const model::AttentionView* mla = nullptr;  // as stored, for an observer of unabsorbed keys
  // The last layer keeps only the rows whose logits are wanted, once their keys are stored.
  bool keeps_head_rows_only = false;

  // Rows that leave the attention block, and the row of the pass behind each.
  [[nodiscard]] std::int64_t num_out_rows() const {
    return keeps_head_rows_only ? static_cast<std::int64_t>(pass.head_rows.size())
                                : pass.num_rows();
  }
  [[nodiscard]] std::int64_t pass_row(std::int64_t out_row) const {
    return keeps_head_rows_only ? pass.head_rows[static_cast<std::size_t>(out_row)] : out_row;
  }
};

// y = norm(x): RMS norm, or layer norm with bias.
void apply_norm(const Exec& exec, const model::ModelConfig& config, const NormWeights& norm,
                const float* x, float* y);

// Norms rows of the residual into ws.normed, both formats.
void norm_residual(Exec& exec, const model::ModelConfig& config, const NormWeights& norm,
                   std::int64_t num_rows, Workspace& ws);

// residual += residual_multiplier * block.
void add_block_to_residual(Exec& exec, const model::ModelConfig& config, std::int64_t num_rows,
                           Workspace& ws);

// Tells the tensor observer, if there is one, of rows that lie `stride` apart.
void observe(const Exec& exec, std::string_view name, int layer, const float* data,
             std::int64_t rows, std::int64_t cols, std::int64_t stride);

// Reads the residual, adds the attention output to it and leaves it with num_out_rows() rows.
void attention_block(const LayerContext& context);

// The steps of attention_block that differ. Both read ws.normed; they store keys and values of all
// rows, and leave the mean values of the out rows in ws.output.
void attend_gqa(const LayerContext& context);
void attend_mla(const LayerContext& context);

// Splits the queries of the out rows into ws.attention_items: blocks of consecutive queries of a
// run, times groups of `heads_per_item` heads; groups of one kv head are `heads_per_kv` heads.
void plan_attention_items(const LayerContext& context, std::int64_t heads_per_kv,
                          std::int64_t heads_per_item);
// Runs body(item, scratch) for all items and counts the work.
template <typename Body>
void run_attention_items(const LayerContext& context, Body&& body) {
  Workspace& ws = context.ws;
  context.exec.pool->for_each(
      static_cast<std::int64_t>(ws.attention_items.size()), [&](std::int64_t index, int thread) {
        body(ws.attention_items[static_cast<std::size_t>(index)],
             ws.attention_scratch.data() + thread * ws.attention_scratch_stride);
      });
}
// Adds what the scores and weighted means of this layer read and compute.
void count_attention(const LayerContext& context, std::int64_t k_dim, std::int64_t v_dim);

// Reads the residual of `num_rows` rows and adds the feed-forward output to it.
void moe_block(const LayerContext& context, std::int64_t num_rows);
void dense_block(const LayerContext& context, std::int64_t num_rows);

}  // namespace moe::engine
