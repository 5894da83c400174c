#pragma once

// What the AVX-512 BF16 level unpacks codes to, by its own instructions. They are those of AVX-512;
// only the product itself needs BF16. Callable where the machine runs Isa::kAvx512.

#include <cstddef>
#include <cstdint>

namespace moe::kernels {

// Each writes sixteen pairs, the even column first: all two of a group of int8 codes, all four of
// one of 4-bit codes, one after another.
void avx512_i8_pairs(const std::byte* codes, std::uint16_t* pairs);
void avx512_u4_pairs(const std::byte* codes, std::uint16_t* pairs);
void avx512_e2m1_pairs(const std::byte* codes, std::uint16_t* pairs);
void avx512_to_pairs(const float* even, const float* odd, std::uint16_t* pairs);

// The same of the integer dot product (VNNI) and of int8 tiles: both fours of a group of 4-bit
// codes.
void avx512_u4_fours(const std::byte* codes, std::int8_t* fours);

}  // namespace moe::kernels
