#include <algorithm>

#include "kernels/api.hpp"
#include "kernels/cpu/attention_blocking.hpp"

namespace moe::kernels {

std::int64_t attention_scratch_floats([[maybe_unused]] std::int64_t num_heads,
                                      std::int64_t max_position, std::int64_t v_dim) noexcept {
  const std::int64_t scalar_floats = max_position + 1;  // one row of weights
  return std::max(scalar_floats, attention_block_floats(v_dim));
}

}  // namespace moe::kernels
