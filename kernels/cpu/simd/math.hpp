#pragma once

// Functions on vectors, written once over the vector type S of a level
// (kernels/cpu/<level>/simd.hpp lists the operations of S). S has internal linkage, and so has
// everything instantiated with it.

#include <cstdint>

namespace moe::kernels::simd {

// The smallest argument of exp whose result is a normal number, and the largest that is finite
// after rounding the exponent up.
inline constexpr float kExpMin = -87.33654F;
inline constexpr float kExpMax = 88.37626F;

// e^x with a relative error below 2^-22 in [kExpMin, kExpMax]; clamped outside; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln(2) / 2, and the Taylor series of e^r to r^7 (the next term is
// below 6e-9).
template <class S>
[[gnu::always_inline]] inline typename S::V exp(typename S::V x) noexcept {
  const auto clamped = S::max(S::broadcast(kExpMin), S::min(S::broadcast(kExpMax), x));
  const auto n = S::round(S::mul(clamped, S::broadcast(1.44269504F)));
  auto r = S::fma(n, S::broadcast(-0x1.62e43p-1F), clamped);  // ln 2, rounded
  r = S::fma(n, S::broadcast(0x1.05c61p-29F), r);             // and what that left out
  auto sum = S::broadcast(1.0F / 5040.0F);
  sum = S::fma(sum, r, S::broadcast(1.0F / 720.0F));
  sum = S::fma(sum, r, S::broadcast(1.0F / 120.0F));
  sum = S::fma(sum, r, S::broadcast(1.0F / 24.0F));
  sum = S::fma(sum, r, S::broadcast(1.0F / 6.0F));
  sum = S::fma(sum, r, S::broadcast(0.5F));
  sum = S::fma(sum, r, S::broadcast(1.0F));
  sum = S::fma(sum, r, S::broadcast(1.0F));
  return S::scale_by_power(sum, n);
}

// x / (1 + e^(-slope x))
template <class S>
[[gnu::always_inline]] inline typename S::V swish(typename S::V x, typename S::V slope) noexcept {
  const auto e = exp<S>(S::mul(S::sub(S::broadcast(0.0F), slope), x));
  return S::div(x, S::add(S::broadcast(1.0F), e));
}

}  // namespace moe::kernels::simd
