#pragma once

// The functions of the AMX level that differ from those of the AVX-512 levels: products of bf16
// and int8 activations. Those of f32 activations come from AVX-512. The bf16 dot product of AVX-512
// is not used: on the processors with tiles it is half as fast as f32.
//
// These functions have not run on hardware yet. Their templates are tested over an emulation of the
// tiles; where a machine has tiles, tests/kernels/amx_test.cpp holds the two to the same bits, and
// the self-test decides before the level is chosen.

#include "kernels/api.hpp"

namespace moe::kernels::amx {

void gemm(const GemmArgs& args) noexcept;
void gemm_gate_up(const GateUpArgs& args) noexcept;
void gemm_int8(const GemmArgs& args) noexcept;
void gemm_gate_up_int8(const GateUpArgs& args) noexcept;

}  // namespace moe::kernels::amx
