#include "lib/engine/kv_cache.hpp"

#include <algorithm>

#include "lib/base/int_math.hpp"

namespace moe::engine {
namespace {

// Whole cache lines, so that every row of an aligned buffer is aligned.
constexpr std::int64_t kRowAlignment = 16;

std::int64_t key_row_floats(const model::ModelConfig& config) {
  const model::AttentionConfig& attention = config.attention;
  if (attention.is_mla) {
    return align_up(attention.mla.kv_lora_rank + attention.mla.qk_rope_head_dim, kRowAlignment);
  }
  return align_up(std::int64_t{attention.num_kv_heads} * attention.head_dim, kRowAlignment);
}

std::int64_t value_row_floats(const model::ModelConfig& config) {
  return config.attention.is_mla ? 0 : key_row_floats(config);
}

// Attention then begins at a whole panel.
bool keys_lie_in_panels(const model::ModelConfig& config) {
  return !config.attention.is_mla &&
         std::all_of(config.layers.begin(), config.layers.end(),
                     [](const auto& layer) { return layer.chunk % kernels::kKeyPanelKeys == 0; });
}

// Whole panels of positions.
std::int64_t padded_context(std::int64_t max_context) {
  return align_up(max_context, kernels::kKeyPanelKeys);
}

}  // namespace

KvCache::KvCache(const model::ModelConfig& config, std::int32_t max_sequences,
                 std::int64_t max_context)
    : num_layers_(config.num_hidden_layers),
      max_context_(padded_context(max_context)),
      key_row_(key_row_floats(config)),
      value_row_(value_row_floats(config)),
      has_key_panels_(keys_lie_in_panels(config)),
      keys_(max_sequences * num_layers_ * max_context_ * key_row_),
      values_(max_sequences * num_layers_ * max_context_ * value_row_) {}

void KvCache::set_key(std::int32_t sequence, std::int64_t layer, std::int64_t position,
                      const float* from, std::int64_t count) {
  if (!has_key_panels_) {
    std::copy_n(from, count, key(sequence, layer, position));
    return;
  }
  const std::int64_t lane = position % kernels::kKeyPanelKeys;
  float* const panel = key(sequence, layer, position - lane) + lane;
  for (std::int64_t i = 0; i < count; ++i) {
    panel[i * kernels::kKeyPanelKeys] = from[i];
  }
}

std::int64_t KvCache::total_bytes(const model::ModelConfig& config, std::int64_t max_sequences,
                                  std::int64_t max_context) {
  // More than any machine has, and small enough to be added to.
  constexpr std::int64_t kVast = std::int64_t{1} << 60;
  const std::int64_t row_bytes = 4 * (key_row_floats(config) + value_row_floats(config));
  if (max_context > kVast) return kVast;
  const auto per_sequence =
      checked_mul(config.num_hidden_layers * row_bytes, padded_context(max_context));
  const auto total = checked_mul(per_sequence.value_or(kVast), max_sequences);
  return std::min(total.value_or(kVast), kVast);
}

}  // namespace moe::engine
