#include "kernels/cpu/amx/products.hpp"

#include "kernels/cpu/amx/level.hpp"
#include "kernels/cpu/amx/simd.hpp"
#include "kernels/cpu/amx/tiles.hpp"
#include "kernels/cpu/avx512/level.hpp"

namespace moe::kernels::amx {

void gemm(const GemmArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    gemm_bf16<Tiles, AmxVectors>(args);
  } else {
    avx512::gemm(args);
  }
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    gemm_gate_up_bf16<Tiles, AmxVectors>(args);
  } else {
    avx512::gemm_gate_up(args);
  }
}

}  // namespace moe::kernels::amx
