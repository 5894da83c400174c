#include "tests/kernels/avx512_bf16_pairs.hpp"

#if defined(__x86_64__)

#include "kernels/cpu/avx512/int8_simd.hpp"
#include "kernels/cpu/avx512_bf16/simd.hpp"

namespace moe::kernels {
namespace {

float* as_stored(std::uint16_t* pairs) {
  return static_cast<float*>(static_cast<void*>(pairs));
}

}  // namespace

void avx512_i8_pairs(const std::byte* codes, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs), Avx512Bf16::load_i8_pairs<0>(codes));
  Avx512Bf16::store(as_stored(pairs + 32), Avx512Bf16::load_i8_pairs<1>(codes));
}

void avx512_u4_pairs(const std::byte* codes, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs), Avx512Bf16::load_u4_pairs<0>(codes));
  Avx512Bf16::store(as_stored(pairs + 32), Avx512Bf16::load_u4_pairs<1>(codes));
  Avx512Bf16::store(as_stored(pairs + 64), Avx512Bf16::load_u4_pairs<2>(codes));
  Avx512Bf16::store(as_stored(pairs + 96), Avx512Bf16::load_u4_pairs<3>(codes));
}

void avx512_e2m1_pairs(const std::byte* codes, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs), Avx512Bf16::load_e2m1_pairs(codes));
}

void avx512_to_pairs(const float* even, const float* odd, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs),
                    Avx512Bf16::to_pairs(Avx512Bf16::load(even), Avx512Bf16::load(odd)));
}

void avx512_u4_fours(const std::byte* codes, std::int8_t* fours) {
  auto* const out = static_cast<std::byte*>(static_cast<void*>(fours));
  Avx512Integers::store_dot(out, Avx512Integers::load_u4_fours<0>(codes));
  Avx512Integers::store_dot(out + 64, Avx512Integers::load_u4_fours<1>(codes));
}

}  // namespace moe::kernels

#else

namespace moe::kernels {

void avx512_i8_pairs(const std::byte*, std::uint16_t*) {}
void avx512_u4_pairs(const std::byte*, std::uint16_t*) {}
void avx512_e2m1_pairs(const std::byte*, std::uint16_t*) {}
void avx512_to_pairs(const float*, const float*, std::uint16_t*) {}
void avx512_u4_fours(const std::byte*, std::int8_t*) {}

}  // namespace moe::kernels

#endif
