#include "kernels/cpu/simd/vector_ops.hpp"

#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels::avx512 {

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
  simd::rms_norm<Avx512>(x, weight, n, eps, y);
}

void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept {
  simd::axpy<Avx512>(scale, x, n, out);
}

void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept {
  simd::f32_to_bf16<Avx512>(x, n, out);
}

float dot(const float* x, const float* y, std::int64_t n) noexcept {
  return simd::dot<Avx512>(x, y, n);
}

}  // namespace moe::kernels::avx512
