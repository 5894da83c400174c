#pragma once

// What the AVX-512 BF16 level unpacks codes to, by its own instructions. They are those of AVX-512;
// only the product itself needs BF16. Callable where the machine runs Isa::kAvx512.

#include <cstddef>
#include <cstdint>

namespace moe::kernels {

// Each writes sixteen pairs, the even column first.
void avx512_u4_pairs(const std::byte* codes, std::uint16_t* pairs);
void avx512_e2m1_pairs(const std::byte* codes, std::uint16_t* pairs);
void avx512_to_pairs(const float* even, const float* odd, std::uint16_t* pairs);

}  // namespace moe::kernels
