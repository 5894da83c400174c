#include "kernels/cpu/levels.hpp"

#include "kernels/cpu/scalar/scalar.hpp"

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

}  // namespace

const KernelTable* level_table(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return &kScalarTable;
    case Isa::kAvx2:
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      break;
  }
  return nullptr;
}

}  // namespace moe::kernels
