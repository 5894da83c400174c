#pragma once

// How far two results of the same arithmetic may be apart, from the unit roundoff of the type and
// the sum of the magnitudes that were added (Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., section 3.1: |error| <= n u / (1 - n u) times sum |x_i y_i|, in any order of
// summation).

#include <cmath>
#include <cstdint>

namespace moe::kernels {

inline constexpr double kF32Roundoff = 0x1p-24;
inline constexpr double kBf16Roundoff = 0x1p-8;

// Of a sum of `terms` products in f32 with the given sum of magnitudes. The worst case grows with
// the number of terms; errors of random sign grow with its square root (same book, section 2.8),
// and six times that leaves room for unlucky signs while a single lost or doubled term of average
// size still shows.
[[nodiscard]] inline double sum_tolerance(std::int64_t terms, double magnitude) {
  return 6.0 * kF32Roundoff * std::sqrt(static_cast<double>(terms) + 4.0) * magnitude + 1e-37;
}

// Of gate * sigmoid(alpha gate) * up, given the errors of its two inputs. The slope of
// x sigmoid(alpha x) is below 1.1. Rounding adds some units for the exponential and the operations
// around it, and the rounding of alpha gate counts as often as that number is large.
[[nodiscard]] inline double glu_tolerance(double gate, double up, double alpha, double gate_error,
                                          double up_error) {
  const double swish = gate / (1.0 + std::exp(-alpha * gate));
  const double units = 8.0 + std::fabs(alpha * gate);
  return units * kF32Roundoff * std::fabs(swish * up) + 1.1 * gate_error * std::fabs(up) +
         up_error * std::fabs(swish) + 1.1 * gate_error * up_error + 1e-37;
}

}  // namespace moe::kernels
