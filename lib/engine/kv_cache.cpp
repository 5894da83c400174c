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

}  // namespace

KvCache::KvCache(const model::ModelConfig& config, std::int32_t max_sequences,
                 std::int64_t max_context)
    : num_layers_(config.num_hidden_layers),
      max_context_(max_context),
      key_row_(key_row_floats(config)),
      value_row_(value_row_floats(config)),
      keys_(max_sequences * num_layers_ * max_context * key_row_),
      values_(max_sequences * num_layers_ * max_context * value_row_) {}

std::int64_t KvCache::total_bytes(const model::ModelConfig& config, std::int64_t max_sequences,
                                  std::int64_t max_context) {
  // More than any machine has, and small enough to be added to.
  constexpr std::int64_t kVast = std::int64_t{1} << 60;
  const std::int64_t row_bytes = 4 * (key_row_floats(config) + value_row_floats(config));
  const auto per_sequence = checked_mul(config.num_hidden_layers * row_bytes, max_context);
  const auto total = checked_mul(per_sequence.value_or(kVast), max_sequences);
  return std::min(total.value_or(kVast), kVast);
}

}  // namespace moe::engine
