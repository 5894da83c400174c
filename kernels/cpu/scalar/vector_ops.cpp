#include <cmath>

#include "kernels/cpu/numeric.hpp"
#include "kernels/cpu/scalar/scalar.hpp"

namespace moe::kernels::scalar {

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
  const float mean_square = dot(x, x, n) / static_cast<float>(n);
  const float inverse_rms = 1.0F / std::sqrt(mean_square + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = x[i] * inverse_rms * weight[i];
  }
}

void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = std::fma(scale, x[i], out[i]);
  }
}

void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = bf16_from_f32(x[i]);
  }
}

float dot(const float* x, const float* y, std::int64_t n) noexcept {
  float sum = 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    sum = std::fma(x[i], y[i], sum);
  }
  return sum;
}

}  // namespace moe::kernels::scalar
