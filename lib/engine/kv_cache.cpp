#include "lib/engine/kv_cache.hpp"

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
  const std::int64_t row = key_row_floats(config) + value_row_floats(config);
  return max_sequences * config.num_hidden_layers * max_context * row * 4;
}

}  // namespace moe::engine
