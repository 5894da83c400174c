#pragma once

// Products of int8 activations with the integer dot product of AVX-512 (VNNI): part of the levels
// above AVX-512, and of that one where the processor has it.

#include "kernels/api.hpp"

namespace moe::kernels::avx512_vnni {

void gemm_int8(const GemmArgs& args) noexcept;
void gemm_gate_up_int8(const GateUpArgs& args) noexcept;

}  // namespace moe::kernels::avx512_vnni
