#include "kernels/cpu/simd/products.hpp"

#include "kernels/cpu/avx512_vnni/level.hpp"
#include "kernels/cpu/avx512_vnni/simd.hpp"
#include "kernels/cpu/simd/int8_sums.hpp"

namespace moe::kernels::avx512_vnni {

void gemm_int8(const GemmArgs& args) noexcept {
  simd::with_int8_sums<Avx512Vnni>(args.weight.format,
                                   [&]<class Sums>() { simd::gemm_of<Avx512Vnni, Sums>(args); });
}

void gemm_gate_up_int8(const GateUpArgs& args) noexcept {
  simd::with_int8_sums<Avx512Vnni>(
      args.weight.format, [&]<class Sums>() { simd::gemm_gate_up_of<Avx512Vnni, Sums>(args); });
}

}  // namespace moe::kernels::avx512_vnni
