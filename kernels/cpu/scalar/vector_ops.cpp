#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/layout.hpp"
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

void quantize_row(const QuantizeArgs& args) noexcept {
  const std::int64_t stride = padded_codes(args.block_cols);
  for (std::int64_t begin = 0, idx = 0; begin < args.cols; begin += args.block_cols, ++idx) {
    const std::int64_t count = std::min(args.block_cols, args.cols - begin);
    const float* const x = args.x + begin;
    float largest = 0.0F;
    bool is_finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
      is_finite = is_finite && std::isfinite(x[i]);
    }
    std::int8_t* const codes = args.codes + idx * stride;
    std::fill_n(codes, padded_codes(count), std::int8_t{0});
    args.sums[idx] = 0;
    if (!is_finite || largest < kLeastInt8Magnitude) {
      args.scales[idx] = is_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    args.scales[idx] = largest / 127.0F;
    const float inverse = 127.0F / largest;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto code = static_cast<std::int8_t>(std::nearbyint(x[i] * inverse));
      codes[i] = code;
      args.sums[idx] += code;
    }
  }
}

}  // namespace moe::kernels::scalar
