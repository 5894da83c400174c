#include "kernels/cpu/avx2/int8_simd.hpp"
#include "kernels/cpu/avx2/level.hpp"
#include "kernels/cpu/simd/int8_sums.hpp"
#include "kernels/cpu/simd/products.hpp"
#include "kernels/cpu/simd/quantize.hpp"

namespace moe::kernels::avx2 {

void gemm_int8(const GemmArgs& args) noexcept {
  simd::with_int8_sums<Avx2Int8, Avx2Int4>(
      args.weight.format, [&]<class Sums>() { simd::gemm_of<Avx2Int8, Sums>(args); });
}

void gemm_gate_up_int8(const GateUpArgs& args) noexcept {
  simd::with_int8_sums<Avx2Int8, Avx2Int4>(
      args.weight.format, [&]<class Sums>() { simd::gemm_gate_up_of<Avx2Int8, Sums>(args); });
}

void quantize_row(const QuantizeArgs& args) noexcept {
  simd::quantize_row<Avx2Int8>(args);
}

}  // namespace moe::kernels::avx2
