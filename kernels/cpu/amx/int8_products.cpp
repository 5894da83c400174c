#include "kernels/cpu/amx/level.hpp"
#include "kernels/cpu/amx/products.hpp"
#include "kernels/cpu/amx/tiles.hpp"
#include "kernels/cpu/avx512/int8_simd.hpp"

namespace moe::kernels::amx {

void gemm_int8(const GemmArgs& args) noexcept {
  gemm_int8<Tiles, Avx512Integers>(args);
}

void gemm_gate_up_int8(const GateUpArgs& args) noexcept {
  gemm_gate_up_int8<Tiles, Avx512Integers>(args);
}

}  // namespace moe::kernels::amx
