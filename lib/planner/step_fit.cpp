#include "lib/planner/step_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "lib/base/check.hpp"

namespace moe::planner {
namespace {

constexpr double kDerivativeStep = 1e-4;
constexpr double kLargestMove = 1.0;  // of a logarithm in one round
constexpr int kMaxDampingTrials = 14;

// One parameter: the logarithm of a term's global value or of one of its factors.
struct Parameter {
  std::size_t term = 0;
  int level = -1;  // -1: global
  std::string key;
  double prior = 0.0;
  double log_sigma = 1.0;
};

// All parameters in a row, and for each operating point which of them make up each term.
class ParameterSet {
 public:
  ParameterSet(const StepConstants& start, const std::vector<PreparedPoint>& points) {
    for (std::size_t t = 0; t < kNumTerms; ++t) {
      const TermConstant& term = start.terms[t];
      add({t, -1, "", std::log(term.prior), term.log_sigma}, std::log(term.value));
      for (std::size_t l = 0; l < kNumTermLevels; ++l) {
        const TermFactors& level = term.levels[l];
        if (level.log_sigma <= 0.0) continue;
        for (const PreparedPoint& point : points) {
          const std::string& key = point.keys().keys[l];
          if (index_.contains({t, static_cast<int>(l), key})) continue;
          const auto it = level.factors.find(key);
          const double factor = it == level.factors.end() ? 1.0 : it->second;
          add({t, static_cast<int>(l), key, 0.0, level.log_sigma}, std::log(factor));
        }
      }
    }
    uses_.resize(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      for (std::size_t t = 0; t < kNumTerms; ++t) {
        std::vector<std::size_t>& used = uses_[i][t];
        used.push_back(index_.at({t, -1, ""}));
        for (std::size_t l = 0; l < kNumTermLevels; ++l) {
          const auto it = index_.find({t, static_cast<int>(l), points[i].keys().keys[l]});
          if (it != index_.end()) used.push_back(it->second);
        }
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return parameters_.size(); }
  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }
  [[nodiscard]] const std::vector<double>& start() const { return start_; }
  [[nodiscard]] const std::vector<std::size_t>& used(std::size_t point, std::size_t term) const {
    return uses_[point][term];
  }
  [[nodiscard]] TermValues values(std::size_t point, const std::vector<double>& x) const {
    TermValues result;
    for (std::size_t t = 0; t < kNumTerms; ++t) {
      double log_value = 0.0;
      for (const std::size_t index : uses_[point][t]) log_value += x[index];
      result.values[t] = std::exp(log_value);
    }
    return result;
  }

 private:
  void add(Parameter parameter, double value) {
    index_[{parameter.term, parameter.level, parameter.key}] = parameters_.size();
    parameters_.push_back(std::move(parameter));
    start_.push_back(value);
  }

  std::vector<Parameter> parameters_;
  std::vector<double> start_;
  std::map<std::tuple<std::size_t, int, std::string>, std::size_t> index_;
  std::vector<std::array<std::vector<std::size_t>, kNumTerms>> uses_;
};

struct Residuals {
  double tpot = 0.0;
  double ttft = 0.0;
};

class Fitter {
 public:
  Fitter(const StepConstants& start, std::vector<PreparedPoint> points,
         const StepFitOptions& options)
      : options_(options), points_(std::move(points)), parameters_(start, points_) {}

  [[nodiscard]] const ParameterSet& parameters() const { return parameters_; }

  Residuals residuals(std::size_t i, const TermValues& terms) {
    PreparedPoint& point = points_[i];
    for (StepModel& model : point.models) model.set_terms(terms);
    const ServingPoint predicted = point.predict();
    return {std::log(predicted.tpot_s / point.measured.tpot_s) / options_.tpot_scale,
            std::log(predicted.ttft_s / point.measured.ttft_s) / options_.ttft_scale};
  }

  double loss(const std::vector<double>& x) {
    double sum = prior_loss(x);
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const Residuals r = residuals(i, parameters_.values(i, x));
      sum += points_[i].weight * (robust_loss(r.tpot) + robust_loss(r.ttft));
    }
    return sum;
  }

  // Gradient and Gauss-Newton matrix of the loss, rows reweighted by how far they are off.
  void linearize(const std::vector<double>& x, std::vector<double>& gradient,
                 std::vector<double>& matrix) {
    const std::size_t n = parameters_.size();
    gradient.assign(n, 0.0);
    matrix.assign(n * n, 0.0);
    for (std::size_t p = 0; p < n; ++p) {
      const Parameter& parameter = parameters_.all()[p];
      const double precision = 1.0 / (parameter.log_sigma * parameter.log_sigma);
      gradient[p] += precision * (x[p] - parameter.prior);
      matrix[p * n + p] += precision;
    }
    for (std::size_t i = 0; i < points_.size(); ++i) add_point(i, x, gradient, matrix);
  }

 private:
  [[nodiscard]] double prior_loss(const std::vector<double>& x) const {
    double sum = 0.0;
    for (std::size_t p = 0; p < x.size(); ++p) {
      const Parameter& parameter = parameters_.all()[p];
      const double z = (x[p] - parameter.prior) / parameter.log_sigma;
      sum += z * z;
    }
    return sum;
  }
  // Cauchy: grows with the logarithm of large residuals.
  [[nodiscard]] double robust_loss(double r) const {
    const double w2 = options_.robust_width * options_.robust_width;
    return w2 * std::log1p(r * r / w2);
  }
  [[nodiscard]] double robust_weight(double r) const {
    return 1.0 / (1.0 + r * r / (options_.robust_width * options_.robust_width));
  }

  void add_point(std::size_t i, const std::vector<double>& x, std::vector<double>& gradient,
                 std::vector<double>& matrix) {
    const std::size_t n = parameters_.size();
    const TermValues terms = parameters_.values(i, x);
    const Residuals base = residuals(i, terms);
    std::array<Residuals, kNumTerms> slope{};
    for (std::size_t t = 0; t < kNumTerms; ++t) {
      TermValues moved = terms;
      moved.values[t] *= std::exp(kDerivativeStep);
      const Residuals r = residuals(i, moved);
      slope[t] = {(r.tpot - base.tpot) / kDerivativeStep, (r.ttft - base.ttft) / kDerivativeStep};
    }
    const double w_tpot = points_[i].weight * robust_weight(base.tpot);
    const double w_ttft = points_[i].weight * robust_weight(base.ttft);
    // All parameters of a term have the same slope.
    for (std::size_t a = 0; a < kNumTerms; ++a) {
      const double g = w_tpot * slope[a].tpot * base.tpot + w_ttft * slope[a].ttft * base.ttft;
      for (const std::size_t p : parameters_.used(i, a)) gradient[p] += g;
      for (std::size_t b = 0; b < kNumTerms; ++b) {
        const double h =
            w_tpot * slope[a].tpot * slope[b].tpot + w_ttft * slope[a].ttft * slope[b].ttft;
        if (h == 0.0) continue;
        for (const std::size_t p : parameters_.used(i, a)) {
          for (const std::size_t q : parameters_.used(i, b)) matrix[p * n + q] += h;
        }
      }
    }
  }

  StepFitOptions options_;
  std::vector<PreparedPoint> points_;
  ParameterSet parameters_;
};

// Solves a symmetric positive definite system in place (Cholesky); false when it is not one.
bool solve(std::vector<double>& matrix, std::vector<double>& right) {
  const std::size_t n = right.size();
  for (std::size_t j = 0; j < n; ++j) {
    double* row_j = &matrix[j * n];
    double diagonal = row_j[j];
    for (std::size_t k = 0; k < j; ++k) diagonal -= row_j[k] * row_j[k];
    if (!(diagonal > 0.0)) return false;
    row_j[j] = std::sqrt(diagonal);
    for (std::size_t i = j + 1; i < n; ++i) {
      double* row_i = &matrix[i * n];
      double sum = row_i[j];
      for (std::size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / row_j[j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) right[i] -= matrix[i * n + k] * right[k];
    right[i] /= matrix[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) right[i] -= matrix[k * n + i] * right[k];
    right[i] /= matrix[i * n + i];
  }
  return true;
}

StepConstants to_constants(const StepConstants& start, const ParameterSet& parameters,
                           const std::vector<double>& x) {
  StepConstants result = start;
  for (TermConstant& term : result.terms) {
    for (TermFactors& level : term.levels) level.factors.clear();
  }
  for (std::size_t p = 0; p < x.size(); ++p) {
    const Parameter& parameter = parameters.all()[p];
    TermConstant& term = result.terms[parameter.term];
    if (parameter.level < 0) {
      term.value = std::exp(x[p]);
    } else {
      term.levels[static_cast<std::size_t>(parameter.level)].factors[parameter.key] =
          std::exp(x[p]);
    }
  }
  return result;
}

}  // namespace

StepFitResult fit_step_constants(const StepConstants& start, std::vector<PreparedPoint> points,
                                 const std::vector<bool>& use, const StepFitOptions& options) {
  MOE_CHECK(points.size() == use.size());
  std::vector<PreparedPoint> used;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (use[i]) used.push_back(std::move(points[i]));
  }
  StepFitResult result;
  result.num_rows = static_cast<std::int64_t>(used.size());
  Fitter fitter(start, std::move(used), options);
  std::vector<double> x = fitter.parameters().start();
  result.num_parameters = static_cast<std::int64_t>(x.size());
  double loss = fitter.loss(x);
  result.first_loss = loss;
  double damping = 1.0;
  std::vector<double> gradient;
  std::vector<double> matrix;
  for (result.num_rounds = 0; result.num_rounds < options.max_rounds; ++result.num_rounds) {
    fitter.linearize(x, gradient, matrix);
    bool is_better = false;
    double gain = 0.0;
    for (int trial = 0; trial < kMaxDampingTrials && !is_better; ++trial) {
      std::vector<double> damped = matrix;
      for (std::size_t p = 0; p < x.size(); ++p) damped[p * x.size() + p] *= 1.0 + damping;
      std::vector<double> move = gradient;
      if (solve(damped, move)) {
        std::vector<double> next = x;
        for (std::size_t p = 0; p < x.size(); ++p) {
          next[p] -= std::clamp(move[p], -kLargestMove, kLargestMove);
        }
        const double next_loss = fitter.loss(next);
        if (next_loss < loss) {
          gain = loss - next_loss;
          loss = next_loss;
          x = std::move(next);
          is_better = true;
        }
      }
      damping = is_better ? std::max(damping / 5.0, 1e-5) : damping * 5.0;
    }
    if (!is_better || gain < 1e-6 * loss) break;
  }
  result.last_loss = loss;
  result.constants = to_constants(start, fitter.parameters(), x);
  return result;
}

}  // namespace moe::planner
