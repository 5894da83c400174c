#pragma once

// Keys and values of all sequences in f32. Layout per sequence and layer: values [position][row], a
// row being [kv_head][head_dim]; keys in panels of 16 positions, [position / 16][kv_head][head_dim]
// [16], as attention reads them. MLA: [position][latent | rotated rope part], which keys and values
// share. Keys also lie in rows, as values do, where chunks of attention cut panels. Windowed layers
// keep all positions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/model/config.hpp"

namespace moe::engine {

class KvCache {
 public:
  KvCache() = default;
  KvCache(const model::ModelConfig& config, std::int32_t max_sequences, std::int64_t max_context);

  // Of a position; in panels, of the panel that begins there.
  [[nodiscard]] float* key(std::int32_t sequence, std::int64_t layer, std::int64_t position) {
    return keys_.data() + offset(sequence, layer, position, key_row_);
  }
  // Writes the key of a position, `count` floats.
  void set_key(std::int32_t sequence, std::int64_t layer, std::int64_t position, const float* from,
               std::int64_t count);
  // MLA: the latent part of the key.
  [[nodiscard]] float* value(std::int32_t sequence, std::int64_t layer, std::int64_t position) {
    if (value_row_ == 0) return key(sequence, layer, position);
    return values_.data() + offset(sequence, layer, position, value_row_);
  }
  [[nodiscard]] std::int64_t key_stride() const { return key_row_; }
  // Floats from panel to panel; 0: keys lie in rows.
  [[nodiscard]] std::int64_t key_panel_stride() const {
    return has_key_panels_ ? kernels::kKeyPanelKeys * key_row_ : 0;
  }
  // Floats from head to head of a key, head_dim wide.
  [[nodiscard]] std::int64_t key_head_stride(std::int64_t head_dim) const {
    return has_key_panels_ ? kernels::kKeyPanelKeys * head_dim : head_dim;
  }
  [[nodiscard]] std::int64_t value_stride() const {
    return value_row_ == 0 ? key_row_ : value_row_;
  }
  // Of one position of one layer, keys and values.
  [[nodiscard]] std::int64_t bytes_per_position() const { return 4 * (key_row_ + value_row_); }

  // Keys and values; the second is empty where they share rows.
  [[nodiscard]] std::array<std::span<const std::byte>, 2> blocks() const {
    return {std::as_bytes(keys_.span()), std::as_bytes(values_.span())};
  }

  // Saturates at 2^60.
  [[nodiscard]] static std::int64_t total_bytes(const model::ModelConfig& config,
                                                std::int64_t max_sequences,
                                                std::int64_t max_context);

 private:
  [[nodiscard]] std::int64_t offset(std::int32_t sequence, std::int64_t layer,
                                    std::int64_t position, std::int64_t row) const {
    return ((sequence * num_layers_ + layer) * max_context_ + position) * row;
  }

  std::int64_t num_layers_ = 0;
  std::int64_t max_context_ = 0;
  std::int64_t key_row_ = 0;
  std::int64_t value_row_ = 0;
  bool has_key_panels_ = false;
  AlignedBuffer<float> keys_;
  AlignedBuffer<float> values_;
};

}  // namespace moe::engine
