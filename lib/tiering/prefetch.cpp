#include "lib/tiering/prefetch.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::tiering {
namespace {

// The largest positive scores, lower index first where equal.
template <typename Score>
void take_best(std::span<const Score> scores, std::int32_t num_guesses,
               std::vector<std::int32_t>& order, std::vector<std::int32_t>& guesses) {
  order.clear();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > Score{0}) order.push_back(static_cast<std::int32_t>(i));
  }
  const auto count = std::min(as_index(num_guesses), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return scores[as_index(a)] > scores[as_index(b)] ||
                             (!(scores[as_index(b)] > scores[as_index(a)]) && a < b);
                    });
  guesses.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

CooccurrenceModel::CooccurrenceModel(std::int32_t num_layers, std::int32_t num_experts)
    : num_layers_(num_layers),
      num_experts_(num_experts),
      follows_(
          as_index(std::max(0, num_layers - 1)) * as_index(num_experts) * as_index(num_experts), 0),
      scores_(as_index(num_experts)) {
  MOE_CHECK(num_layers > 0 && num_experts > 0);
}

void CooccurrenceModel::learn(std::span<const std::int32_t> chosen, std::int32_t top_k) {
  MOE_CHECK(chosen.size() == as_index(num_layers_) * as_index(top_k));
  for (std::int32_t layer = 0; layer + 1 < num_layers_; ++layer) {
    const auto here = chosen.subspan(as_index(layer) * as_index(top_k), as_index(top_k));
    const auto there = chosen.subspan(as_index(layer + 1) * as_index(top_k), as_index(top_k));
    for (const std::int32_t a : here) {
      if (a < 0) continue;
      std::int64_t* row =
          follows_.data() +
          (as_index(layer) * as_index(num_experts_) + as_index(a)) * as_index(num_experts_);
      for (const std::int32_t b : there) {
        if (b >= 0) ++row[b];
      }
    }
  }
}

void CooccurrenceModel::predict(std::int32_t layer, std::span<const std::int32_t> chosen,
                                std::int32_t num_guesses, std::vector<std::int32_t>& guesses) {
  MOE_CHECK(layer >= 0 && layer + 1 < num_layers_);
  std::fill(scores_.begin(), scores_.end(), 0);
  for (const std::int32_t a : chosen) {
    if (a < 0) continue;
    const std::int64_t* row =
        follows_.data() +
        (as_index(layer) * as_index(num_experts_) + as_index(a)) * as_index(num_experts_);
    for (std::size_t b = 0; b < scores_.size(); ++b) scores_[b] += row[b];
  }
  take_best<std::int64_t>(scores_, num_guesses, order_, guesses);
}

ActivationLibrary::ActivationLibrary(std::int32_t num_layers, std::int32_t num_experts,
                                     std::int32_t capacity)
    : num_layers_(num_layers), num_experts_(num_experts), capacity_(capacity) {
  MOE_CHECK(num_layers > 0 && num_experts > 0 && capacity > 0);
}

void ActivationLibrary::add(std::span<const std::int64_t> counts) {
  MOE_CHECK(counts.size() == as_index(num_layers_) * as_index(num_experts_));
  std::vector<float> matrix(counts.size(), 0.0F);
  for (std::size_t begin = 0; begin < counts.size(); begin += as_index(num_experts_)) {
    double squares = 0.0;
    for (std::size_t i = begin; i < begin + as_index(num_experts_); ++i) {
      squares += static_cast<double>(counts[i]) * static_cast<double>(counts[i]);
    }
    if (squares <= 0.0) continue;
    const double scale = 1.0 / std::sqrt(squares);
    for (std::size_t i = begin; i < begin + as_index(num_experts_); ++i) {
      matrix[i] = static_cast<float>(static_cast<double>(counts[i]) * scale);
    }
  }
  if (matrices_.size() < as_index(capacity_)) {
    matrices_.push_back(std::move(matrix));
    return;
  }
  matrices_[oldest_] = std::move(matrix);
  oldest_ = (oldest_ + 1) % matrices_.size();
}

std::span<const float> ActivationLibrary::row(std::size_t matrix, std::int32_t layer) const {
  return std::span(matrices_[matrix])
      .subspan(as_index(layer) * as_index(num_experts_), as_index(num_experts_));
}

ActivationTracker::ActivationTracker(const ActivationLibrary& library, std::int32_t num_experts)
    : library_(&library),
      num_experts_(num_experts),
      counts_(as_index(library.num_layers()) * as_index(num_experts)),
      squares_(as_index(library.num_layers())),
      products_(library.num_matrices() * as_index(library.num_layers())),
      similarity_(library.num_matrices()) {}

void ActivationTracker::begin_sequence() {
  layer_ = -1;
  std::fill(counts_.begin(), counts_.end(), 0.0);
  std::fill(squares_.begin(), squares_.end(), 0.0);
  std::fill(products_.begin(), products_.end(), 0.0);
}

void ActivationTracker::observe(std::int32_t layer, std::span<const std::int32_t> chosen) {
  MOE_CHECK(layer >= 0 && layer < library_->num_layers());
  MOE_CHECK(similarity_.size() == library_->num_matrices());
  if (layer == 0) std::fill(similarity_.begin(), similarity_.end(), 0.0);
  layer_ = layer;
  double& squares = squares_[as_index(layer)];
  for (const std::int32_t expert : chosen) {
    if (expert < 0) continue;
    double& count = counts_[as_index(layer) * as_index(num_experts_) + as_index(expert)];
    squares += 2.0 * count + 1.0;
    count += 1.0;
  }
  const double length = squares > 0.0 ? std::sqrt(squares) : 1.0;
  for (std::size_t matrix = 0; matrix < similarity_.size(); ++matrix) {
    const std::span<const float> row = library_->row(matrix, layer);
    double& product = products_[matrix * as_index(library_->num_layers()) + as_index(layer)];
    for (const std::int32_t expert : chosen) {
      if (expert >= 0) product += static_cast<double>(row[as_index(expert)]);
    }
    similarity_[matrix] += product / length;
  }
}

void ActivationTracker::predict(std::int32_t num_guesses, std::vector<std::int32_t>& guesses) {
  guesses.clear();
  if (similarity_.empty() || layer_ < 0 || layer_ + 1 >= library_->num_layers()) return;
  const std::size_t best = static_cast<std::size_t>(
      std::max_element(similarity_.begin(), similarity_.end()) - similarity_.begin());
  take_best<float>(library_->row(best, layer_ + 1), num_guesses, order_, guesses);
}

double PredictionCounts::precision() const {
  return num_guesses == 0 ? 0.0
                          : static_cast<double>(num_useful) / static_cast<double>(num_guesses);
}

double PredictionCounts::recall() const {
  return num_wanted == 0 ? 0.0 : static_cast<double>(num_useful) / static_cast<double>(num_wanted);
}

}  // namespace moe::tiering
