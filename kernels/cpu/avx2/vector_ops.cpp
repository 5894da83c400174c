#include "kernels/cpu/simd/vector_ops.hpp"

#include "kernels/cpu/avx2/level.hpp"
#include "kernels/cpu/avx2/simd.hpp"

namespace moe::kernels::avx2 {

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
  simd::rms_norm<Avx2>(x, weight, n, eps, y);
}

void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept {
  simd::axpy<Avx2>(scale, x, n, out);
}

void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept {
  simd::f32_to_bf16<Avx2>(x, n, out);
}

float dot(const float* x, const float* y, std::int64_t n) noexcept {
  return simd::dot<Avx2>(x, y, n);
}

}  // namespace moe::kernels::avx2
