#include "kernels/cpu/simd/attention.hpp"

#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels::avx512 {

void attention(const AttentionArgs& args) noexcept {
  simd::attention<Avx512>(args);
}

}  // namespace moe::kernels::avx512
