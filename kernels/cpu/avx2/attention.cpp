#include "kernels/cpu/simd/attention.hpp"

#include "kernels/cpu/avx2/level.hpp"
#include "kernels/cpu/avx2/simd.hpp"

namespace moe::kernels::avx2 {

void attention(const AttentionArgs& args) noexcept {
  simd::attention<Avx2>(args);
}

}  // namespace moe::kernels::avx2
