#pragma once

// Operations on one vector, written once over the vector type S of a level.

#include <cstdint>

#include "kernels/cpu/simd/lanes.hpp"

namespace moe::kernels::simd {

// Four running sums hide the latency of the multiply-add; they are added in a fixed order.
template <class S>
float dot(const float* x, const float* y, std::int64_t n) noexcept {
  using V = typename S::V;
  V sums[4];
#pragma GCC unroll 4
  for (auto& sum : sums) {
    sum = S::broadcast(0.0F);
  }
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      sums[k] = S::fma(S::load(x + i + k * kLanes), S::load(y + i + k * kLanes), sums[k]);
    }
  }
  for (; i + 16 <= n; i += 16) {
    sums[0] = S::fma(S::load(x + i), S::load(y + i), sums[0]);
  }
  if (i < n) {
    sums[1] = S::fma(S::load_partial(x + i, n - i), S::load_partial(y + i, n - i), sums[1]);
  }
  return S::reduce_add(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
}

template <class S>
void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
  const float mean_square = dot<S>(x, x, n) / static_cast<float>(n);
  const auto inverse_rms = S::broadcast(1.0F / __builtin_sqrtf(mean_square + eps));
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    S::store(y + i, S::mul(S::mul(S::load(x + i), inverse_rms), S::load(weight + i)));
  }
  if (i < n) {
    const auto scaled = S::mul(S::load_partial(x + i, n - i), inverse_rms);
    S::store_partial(y + i, S::mul(scaled, S::load_partial(weight + i, n - i)), n - i);
  }
}

template <class S>
void axpy(float scale, const float* x, std::int64_t n, float* out) noexcept {
  const auto factor = S::broadcast(scale);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    S::store(out + i, S::fma(factor, S::load(x + i), S::load(out + i)));
  }
  if (i < n) {
    const auto sum = S::fma(factor, S::load_partial(x + i, n - i), S::load_partial(out + i, n - i));
    S::store_partial(out + i, sum, n - i);
  }
}

template <class S>
void f32_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) noexcept {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    S::store_bf16(out + i, S::load(x + i));
  }
  if (i < n) {
    std::uint16_t rounded[16];
    S::store_bf16(rounded, S::load_partial(x + i, n - i));
    for (std::int64_t k = 0; i + k < n; ++k) {
      out[i + k] = rounded[k];
    }
  }
}

}  // namespace moe::kernels::simd
