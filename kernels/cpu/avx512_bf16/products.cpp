#include "kernels/cpu/simd/products.hpp"

#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512_bf16/level.hpp"
#include "kernels/cpu/avx512_bf16/simd.hpp"

namespace moe::kernels::avx512_bf16 {
namespace {

using DotSums = simd::PlainSums<Avx512Bf16, simd::Bf16DotProduct<Avx512Bf16>>;

}  // namespace

void gemm(const GemmArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::gemm_of<Avx512Bf16, DotSums>(args);
  } else {
    avx512::gemm(args);
  }
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::gemm_gate_up_of<Avx512Bf16, DotSums>(args);
  } else {
    avx512::gemm_gate_up(args);
  }
}

}  // namespace moe::kernels::avx512_bf16
