#include "kernels/cpu/simd/products.hpp"

#include "kernels/cpu/avx2/level.hpp"
#include "kernels/cpu/avx2/simd.hpp"

namespace moe::kernels::avx2 {

void gemm(const GemmArgs& args) noexcept {
  simd::gemm<Avx2>(args);
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  simd::gemm_gate_up<Avx2>(args);
}

}  // namespace moe::kernels::avx2
