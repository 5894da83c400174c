#include "kernels/cpu/simd/products.hpp"

#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512_bf16/level.hpp"
#include "kernels/cpu/avx512_bf16/simd.hpp"

namespace moe::kernels::avx512_bf16 {
void gemm(const GemmArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::with_dot_sums<Avx512Bf16>(args.weight.format,
                                    [&]<class Sums>() { simd::gemm_of<Avx512Bf16, Sums>(args); });
  } else {
    avx512::gemm(args);
  }
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::with_dot_sums<Avx512Bf16>(
        args.weight.format, [&]<class Sums>() { simd::gemm_gate_up_of<Avx512Bf16, Sums>(args); });
  } else {
    avx512::gemm_gate_up(args);
  }
}

}  // namespace moe::kernels::avx512_bf16
