#pragma once

// The functions of the AVX-512 BF16 level that differ from those of the AVX-512 level.

#include "kernels/api.hpp"

namespace moe::kernels::avx512_bf16 {

void gemm(const GemmArgs& args) noexcept;
void gemm_gate_up(const GateUpArgs& args) noexcept;

}  // namespace moe::kernels::avx512_bf16
