#pragma once

// The AVX-512 levels with their vector type replaced by sixteen floats in plain C++: the same
// templates and tile shapes as the real ones, so that their logic is tested on every machine. Only
// the one or two instructions behind each vector operation differ. The AMX level has its tiles
// emulated too, with the bits of the hardware.

#include "kernels/api.hpp"

namespace moe::kernels {

[[nodiscard]] const KernelTable& emulated_avx512_table();
[[nodiscard]] const KernelTable& emulated_avx512_bf16_table();
[[nodiscard]] const KernelTable& emulated_amx_table();

// Products of int8 activations, and their codes, with the integers of AVX-512.
void add_emulated_int8(bool has_vnni, KernelTable* table);

}  // namespace moe::kernels
