#pragma once

// The functions of the AVX2 level (with FMA and F16C).

#include "kernels/api.hpp"

namespace moe::kernels::avx2 {

void gemm(const GemmArgs& args) noexcept;
void gemm_gate_up(const GateUpArgs& args) noexcept;
void attention(const AttentionArgs& args) noexcept;
void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept;
void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept;
void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept;
void gemm_int8(const GemmArgs& args) noexcept;
void gemm_gate_up_int8(const GateUpArgs& args) noexcept;
void quantize_row(const QuantizeArgs& args) noexcept;
[[nodiscard]] float dot(const float* x, const float* y, std::int64_t n) noexcept;

}  // namespace moe::kernels::avx2
