#include "tests/kernels/emulated_int8.hpp"

#include "kernels/cpu/simd/int8_sums.hpp"
#include "kernels/cpu/simd/products.hpp"
#include "kernels/cpu/simd/quantize.hpp"
#include "tests/kernels/emulated.hpp"

namespace moe::kernels {

void add_emulated_int8(bool has_vnni, KernelTable* table) {
  table->quantize_row = [](const QuantizeArgs& args) noexcept {
    simd::quantize_row<EmulatedPairs>(args);
  };
  if (has_vnni) {
    table->gemm_int8 = [](const GemmArgs& args) noexcept {
      simd::with_int8_sums<EmulatedQuads>(
          args.weight.format, [&]<class Sums>() { simd::gemm_of<EmulatedQuads, Sums>(args); });
    };
    table->gemm_gate_up_int8 = [](const GateUpArgs& args) noexcept {
      simd::with_int8_sums<EmulatedQuads>(args.weight.format, [&]<class Sums>() {
        simd::gemm_gate_up_of<EmulatedQuads, Sums>(args);
      });
    };
    return;
  }
  table->gemm_int8 = [](const GemmArgs& args) noexcept {
    simd::with_int8_sums<EmulatedPairs>(
        args.weight.format, [&]<class Sums>() { simd::gemm_of<EmulatedPairs, Sums>(args); });
  };
  table->gemm_gate_up_int8 = [](const GateUpArgs& args) noexcept {
    simd::with_int8_sums<EmulatedPairs>(args.weight.format, [&]<class Sums>() {
      simd::gemm_gate_up_of<EmulatedPairs, Sums>(args);
    });
  };
}

}  // namespace moe::kernels
