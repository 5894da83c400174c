#include "lib/topology/least_squares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/check.hpp"

namespace moe::topology {
namespace {

// Normal equations of columns scaled to unit length.
struct Normal {
  std::size_t n = 0;
  std::vector<double> gram;   // [n, n]
  std::vector<double> right;  // [n]
  std::vector<double> scale;  // [n], of the columns
};

Normal normal_equations(const Design& design, std::span<const double> targets,
                        std::span<const double> weights) {
  Normal normal;
  normal.n = design.num_columns;
  normal.gram.assign(normal.n * normal.n, 0.0);
  normal.right.assign(normal.n, 0.0);
  for (std::size_t i = 0; i < design.num_rows(); ++i) {
    const std::span<const double> row = design.row(i);
    const double square = weights[i] * weights[i];
    for (std::size_t a = 0; a < normal.n; ++a) {
      normal.right[a] += square * row[a] * targets[i];
      for (std::size_t b = 0; b <= a; ++b)
        normal.gram[a * normal.n + b] += square * row[a] * row[b];
    }
  }
  normal.scale.assign(normal.n, 0.0);
  for (std::size_t a = 0; a < normal.n; ++a) {
    normal.scale[a] = std::sqrt(normal.gram[a * normal.n + a]);
  }
  for (std::size_t a = 0; a < normal.n; ++a) {
    const double scale_a = normal.scale[a] > 0.0 ? normal.scale[a] : 1.0;
    normal.right[a] /= scale_a;
    for (std::size_t b = 0; b <= a; ++b) {
      const double scale_b = normal.scale[b] > 0.0 ? normal.scale[b] : 1.0;
      normal.gram[a * normal.n + b] /= scale_a * scale_b;
      normal.gram[b * normal.n + a] = normal.gram[a * normal.n + b];
    }
  }
  return normal;
}

// Solves the equations of the chosen columns by Cholesky; a little is added to the diagonal, since
// columns of one fit can be nearly the same.
std::vector<double> solve(const Normal& normal, const std::vector<std::size_t>& chosen) {
  const std::size_t k = chosen.size();
  constexpr double kRidge = 1e-11;
  std::vector<double> lower(k * k, 0.0);
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = normal.gram[chosen[i] * normal.n + chosen[j]];
      if (i == j) sum += kRidge;
      for (std::size_t m = 0; m < j; ++m) sum -= lower[i * k + m] * lower[j * k + m];
      lower[i * k + j] = i == j ? std::sqrt(std::max(sum, kRidge)) : sum / lower[j * k + j];
    }
  }
  std::vector<double> x(k, 0.0);
  for (std::size_t i = 0; i < k; ++i) {
    double sum = normal.right[chosen[i]];
    for (std::size_t m = 0; m < i; ++m) sum -= lower[i * k + m] * x[m];
    x[i] = sum / lower[i * k + i];
  }
  for (std::size_t i = k; i-- > 0;) {
    double sum = x[i];
    for (std::size_t m = i + 1; m < k; ++m) sum -= lower[m * k + i] * x[m];
    x[i] = sum / lower[i * k + i];
  }
  return x;
}

double gradient(const Normal& normal, const std::vector<double>& x, std::size_t column) {
  double value = normal.right[column];
  for (std::size_t b = 0; b < normal.n; ++b) value -= normal.gram[column * normal.n + b] * x[b];
  return value;
}

// Moves towards the solution of the chosen columns until one of them would turn negative, drops
// that one, and goes on.
void settle(const Normal& normal, std::vector<std::size_t>& chosen, std::vector<double>& x) {
  for (std::size_t round = 0; round <= normal.n && !chosen.empty(); ++round) {
    const std::vector<double> goal = solve(normal, chosen);
    double step = 1.0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (goal[i] > 0.0) continue;
      const double from = x[chosen[i]];
      step = std::min(step, from / (from - goal[i] + std::numeric_limits<double>::min()));
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      x[chosen[i]] += step * (goal[i] - x[chosen[i]]);
    }
    if (step >= 1.0) return;
    std::erase_if(chosen, [&](std::size_t column) {
      const bool is_out = x[column] <= 1e-14;
      if (is_out) x[column] = 0.0;
      return is_out;
    });
  }
}

std::vector<double> inverse(std::span<const double> targets) {
  std::vector<double> weights(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    MOE_CHECK(targets[i] > 0.0);
    weights[i] = 1.0 / targets[i];
  }
  return weights;
}

}  // namespace

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> fit_non_negative(const Design& design, std::span<const double> targets,
                                     std::span<const double> weights) {
  const Normal normal = normal_equations(design, targets, weights);
  std::vector<double> x(normal.n, 0.0);
  std::vector<std::size_t> chosen;
  constexpr double kTolerance = 1e-12;
  for (std::size_t round = 0; round < 3 * normal.n; ++round) {
    std::size_t best = normal.n;
    double steepest = kTolerance;
    for (std::size_t column = 0; column < normal.n; ++column) {
      const bool is_in = std::find(chosen.begin(), chosen.end(), column) != chosen.end();
      if (is_in || normal.scale[column] <= 0.0) continue;
      const double slope = gradient(normal, x, column);
      if (slope > steepest) {
        steepest = slope;
        best = column;
      }
    }
    if (best == normal.n) break;
    chosen.push_back(best);
    settle(normal, chosen, x);
  }
  for (std::size_t column = 0; column < normal.n; ++column) {
    if (normal.scale[column] > 0.0) x[column] /= normal.scale[column];
  }
  return x;
}

std::vector<double> relative_errors(const Design& design, std::span<const double> coefficients,
                                    std::span<const double> targets) {
  std::vector<double> errors(design.num_rows());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors[i] = std::abs(dot(design.row(i), coefficients) / targets[i] - 1.0);
  }
  return errors;
}

std::vector<double> fit_relative(const Design& design, std::span<const double> targets) {
  constexpr int kRounds = 15;
  constexpr double kFloor = 0.01;  // errors below this all count the same
  const std::vector<double> base = inverse(targets);
  std::vector<double> weights = base;
  std::vector<double> x;
  for (int round = 0; round < kRounds; ++round) {
    x = fit_non_negative(design, targets, weights);
    const std::vector<double> errors = relative_errors(design, x, targets);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = base[i] / std::sqrt(std::max(errors[i], kFloor));
    }
  }
  return x;
}

std::vector<double> fit_minimax(const Design& design, std::span<const double> targets) {
  constexpr int kRounds = 400;
  const std::vector<double> base = inverse(targets);
  std::vector<double> shares(targets.size(), 1.0 / static_cast<double>(targets.size()));
  std::vector<double> weights(targets.size());
  std::vector<double> best;
  double best_error = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = base[i] * std::sqrt(shares[i]);
    }
    const std::vector<double> x = fit_non_negative(design, targets, weights);
    const std::vector<double> errors = relative_errors(design, x, targets);
    const double worst = *std::max_element(errors.begin(), errors.end());
    if (worst < best_error) {
      best_error = worst;
      best = x;
    }
    double total = 0.0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      shares[i] *= errors[i];
      total += shares[i];
    }
    if (total <= 0.0) break;
    for (double& share : shares) share /= total;
  }
  return best;
}

ErrorSummary summarise_errors(std::vector<double> errors) {
  ErrorSummary summary;
  summary.count = static_cast<std::int64_t>(errors.size());
  if (errors.empty()) return summary;
  std::sort(errors.begin(), errors.end());
  const auto rank = [&](double share) {
    const double place = std::ceil(share * static_cast<double>(errors.size()));
    return errors[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
  };
  summary.p50 = rank(0.5);
  summary.p90 = rank(0.9);
  summary.max = errors.back();
  return summary;
}

}  // namespace moe::topology
