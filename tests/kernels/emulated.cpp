#include "tests/kernels/emulated.hpp"

#include "kernels/cpu/simd/attention.hpp"
#include "kernels/cpu/simd/products.hpp"
#include "kernels/cpu/simd/vector_ops.hpp"
#include "tests/kernels/emulated_simd.hpp"

namespace moe::kernels {
namespace {

void gemm(const GemmArgs& args) noexcept {
  simd::gemm<Emulated>(args);
}
void gemm_gate_up(const GateUpArgs& args) noexcept {
  simd::gemm_gate_up<Emulated>(args);
}
void attention(const AttentionArgs& args) noexcept {
  simd::attention<Emulated>(args);
}
void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
  simd::rms_norm<Emulated>(x, weight, n, eps, y);
}
void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept {
  simd::axpy<Emulated>(scale, x, n, out);
}
void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept {
  simd::f32_to_bf16<Emulated>(x, n, out);
}
float dot(const float* x, const float* y, std::int64_t n) noexcept {
  return simd::dot<Emulated>(x, y, n);
}

void gemm_bf16(const GemmArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::with_dot_sums<Emulated>(args.weight.format,
                                  [&]<class Sums>() { simd::gemm_of<Emulated, Sums>(args); });
  } else {
    gemm(args);
  }
}
void gemm_gate_up_bf16(const GateUpArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    simd::with_dot_sums<Emulated>(
        args.weight.format, [&]<class Sums>() { simd::gemm_gate_up_of<Emulated, Sums>(args); });
  } else {
    gemm_gate_up(args);
  }
}

KernelTable avx512_table() {
  KernelTable table{.isa = Isa::kAvx512,
                    .gemm = gemm,
                    .gemm_gate_up = gemm_gate_up,
                    .attention = attention,
                    .rms_norm = rms_norm,
                    .axpy = axpy,
                    .f32_to_bf16 = f32_to_bf16,
                    .dot = dot};
  add_emulated_int8(false, &table);
  return table;
}

KernelTable avx512_bf16_table() {
  KernelTable table = avx512_table();
  table.isa = Isa::kAvx512Bf16;
  table.gemm = gemm_bf16;
  table.gemm_gate_up = gemm_gate_up_bf16;
  table.has_coded_bf16 = true;
  add_emulated_int8(true, &table);
  return table;
}

}  // namespace

const KernelTable& emulated_avx512_table() {
  static const KernelTable table = avx512_table();
  return table;
}

const KernelTable& emulated_avx512_bf16_table() {
  static const KernelTable table = avx512_bf16_table();
  return table;
}

}  // namespace moe::kernels
