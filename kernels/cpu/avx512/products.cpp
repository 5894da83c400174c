#include "kernels/cpu/simd/products.hpp"

#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels::avx512 {

void gemm(const GemmArgs& args) noexcept {
  simd::gemm<Avx512>(args);
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  simd::gemm_gate_up<Avx512>(args);
}

}  // namespace moe::kernels::avx512
