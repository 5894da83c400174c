#include "kernels/cpu/levels.hpp"

#include "kernels/cpu/scalar/scalar.hpp"
#if defined(__x86_64__)
#include "kernels/cpu/avx2/level.hpp"
#endif

namespace moe::kernels {
namespace {

constexpr KernelTable kScalarTable = {
    .isa = Isa::kScalar,
    .gemm = scalar::gemm,
    .gemm_gate_up = scalar::gemm_gate_up,
    .attention = scalar::attention,
    .rms_norm = scalar::rms_norm,
    .axpy = scalar::axpy,
    .f32_to_bf16 = scalar::f32_to_bf16,
    .dot = scalar::dot,
};

#if defined(__x86_64__)

constexpr KernelTable kAvx2Table = {
    .isa = Isa::kAvx2,
    .gemm = avx2::gemm,
    .gemm_gate_up = avx2::gemm_gate_up,
    .attention = avx2::attention,
    .rms_norm = avx2::rms_norm,
    .axpy = avx2::axpy,
    .f32_to_bf16 = avx2::f32_to_bf16,
    .dot = avx2::dot,
};

#endif

}  // namespace

const KernelTable* level_table(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return &kScalarTable;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return &kAvx2Table;
#else
    case Isa::kAvx2:
#endif
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      break;
  }
  return nullptr;
}

}  // namespace moe::kernels
