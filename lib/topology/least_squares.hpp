#pragma once

// Fits of non-negative coefficients in relative error: a time model is right when it is a few per
// cent off everywhere, from microseconds to seconds.

#include <cstdint>
#include <span>
#include <vector>

namespace moe::topology {

// Row-major design matrix [num_rows, num_columns].
struct Design {
  std::size_t num_columns = 0;
  std::vector<double> values;

  [[nodiscard]] std::size_t num_rows() const {
    return num_columns == 0 ? 0 : values.size() / num_columns;
  }
  [[nodiscard]] std::span<const double> row(std::size_t i) const {
    return {values.data() + i * num_columns, num_columns};
  }
};

// Coefficients x >= 0 that minimise the weighted squares of (design x - targets); weights multiply
// the residuals. Active-set method of Lawson and Hanson on the normal equations.
[[nodiscard]] std::vector<double> fit_non_negative(const Design& design,
                                                   std::span<const double> targets,
                                                   std::span<const double> weights);

// The same for |design x - t| / t, with single outliers kept from steering it (iteratively
// reweighted towards absolute deviations). Targets are positive.
[[nodiscard]] std::vector<double> fit_relative(const Design& design,
                                               std::span<const double> targets);

// Smallest possible largest relative error (Lawson's reweighting). For short, clean logs.
[[nodiscard]] std::vector<double> fit_minimax(const Design& design,
                                              std::span<const double> targets);

[[nodiscard]] double dot(std::span<const double> a, std::span<const double> b);

// |predicted / target - 1| of every row.
[[nodiscard]] std::vector<double> relative_errors(const Design& design,
                                                  std::span<const double> coefficients,
                                                  std::span<const double> targets);

// Nearest-rank percentile of a copy; 0 for none.
struct ErrorSummary {
  std::int64_t count = 0;
  double p50 = 0.0;
  double p90 = 0.0;
  double max = 0.0;
};
[[nodiscard]] ErrorSummary summarise_errors(std::vector<double> errors);

}  // namespace moe::topology
