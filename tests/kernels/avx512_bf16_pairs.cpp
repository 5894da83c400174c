#include "tests/kernels/avx512_bf16_pairs.hpp"

#if defined(__x86_64__)

#include "kernels/cpu/avx512_bf16/simd.hpp"

namespace moe::kernels {
namespace {

float* as_stored(std::uint16_t* pairs) {
  return static_cast<float*>(static_cast<void*>(pairs));
}

}  // namespace

void avx512_u4_pairs(const std::byte* codes, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs), Avx512Bf16::load_u4_pairs(codes));
}

void avx512_e2m1_pairs(const std::byte* codes, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs), Avx512Bf16::load_e2m1_pairs(codes));
}

void avx512_to_pairs(const float* even, const float* odd, std::uint16_t* pairs) {
  Avx512Bf16::store(as_stored(pairs),
                    Avx512Bf16::to_pairs(Avx512Bf16::load(even), Avx512Bf16::load(odd)));
}

}  // namespace moe::kernels

#else

namespace moe::kernels {

void avx512_u4_pairs(const std::byte*, std::uint16_t*) {}
void avx512_e2m1_pairs(const std::byte*, std::uint16_t*) {}
void avx512_to_pairs(const float*, const float*, std::uint16_t*) {}

}  // namespace moe::kernels

#endif
