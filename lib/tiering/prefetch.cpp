#include "lib/tiering/prefetch.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"

namespace moe::tiering {
namespace {

std::size_t idx(std::int32_t value) {
  return static_cast<std::size_t>(value);
}

// The largest positive scores, lower index first where equal.
template <typename Score>
void take_best(std::span<const Score> scores, std::int32_t num_guesses,
               std::vector<std::int32_t>& order, std::vector<std::int32_t>& guesses) {
  order.clear();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > Score{0}) order.push_back(static_cast<std::int32_t>(i));
  }
  const auto count = std::min(idx(num_guesses), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return scores[idx(a)] > scores[idx(b)] ||
                             (!(scores[idx(b)] > scores[idx(a)]) && a < b);
                    });
  guesses.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

CooccurrenceModel::CooccurrenceModel(std::int32_t num_layers, std::int32_t num_experts)
    : num_layers_(num_layers),
      num_experts_(num_experts),
      follows_(idx(std::max(0, num_layers - 1)) * idx(num_experts) * idx(num_experts), 0),
      scores_(idx(num_experts)) {
  MOE_CHECK(num_layers > 0 && num_experts > 0);
}

void CooccurrenceModel::learn(std::span<const std::int32_t> chosen, std::int32_t top_k) {
  MOE_CHECK(chosen.size() == idx(num_layers_) * idx(top_k));
  for (std::int32_t layer = 0; layer + 1 < num_layers_; ++layer) {
    const auto here = chosen.subspan(idx(layer) * idx(top_k), idx(top_k));
    const auto there = chosen.subspan(idx(layer + 1) * idx(top_k), idx(top_k));
    for (const std::int32_t a : here) {
      if (a < 0) continue;
      std::int64_t* row =
          follows_.data() + (idx(layer) * idx(num_experts_) + idx(a)) * idx(num_experts_);
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
        follows_.data() + (idx(layer) * idx(num_experts_) + idx(a)) * idx(num_experts_);
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
  MOE_CHECK(counts.size() == idx(num_layers_) * idx(num_experts_));
  std::vector<float> matrix(counts.size(), 0.0F);
  for (std::size_t begin = 0; begin < counts.size(); begin += idx(num_experts_)) {
    double squares = 0.0;
    for (std::size_t i = begin; i < begin + idx(num_experts_); ++i) {
      squares += static_cast<double>(counts[i]) * static_cast<double>(counts[i]);
    }
    if (squares <= 0.0) continue;
    const double scale = 1.0 / std::sqrt(squares);
    for (std::size_t i = begin; i < begin + idx(num_experts_); ++i) {
      matrix[i] = static_cast<float>(static_cast<double>(counts[i]) * scale);
    }
  }
  if (matrices_.size() < idx(capacity_)) {
    matrices_.push_back(std::move(matrix));
    return;
  }
  matrices_[oldest_] = std::move(matrix);
  oldest_ = (oldest_ + 1) % matrices_.size();
}

void ActivationLibrary::predict(std::int32_t layer, std::span<const std::int64_t> running,
                                std::int32_t num_guesses,
                                std::vector<std::int32_t>& guesses) const {
  MOE_CHECK(layer >= 0 && layer + 1 < num_layers_);
  guesses.clear();
  const std::vector<float>* best = nullptr;
  double best_similarity = -1.0;
  for (const std::vector<float>& matrix : matrices_) {
    double similarity = 0.0;
    for (std::int32_t seen = 0; seen <= layer; ++seen) {
      double product = 0.0;
      double squares = 0.0;
      const std::size_t begin = idx(seen) * idx(num_experts_);
      for (std::size_t i = begin; i < begin + idx(num_experts_); ++i) {
        const double count = static_cast<double>(running[i]);
        product += count * static_cast<double>(matrix[i]);
        squares += count * count;
      }
      if (squares > 0.0) similarity += product / std::sqrt(squares);
    }
    if (similarity > best_similarity) {
      best_similarity = similarity;
      best = &matrix;
    }
  }
  if (best == nullptr) return;
  std::vector<std::int32_t> order;
  const std::span<const float> row(best->data() + idx(layer + 1) * idx(num_experts_),
                                   idx(num_experts_));
  take_best<float>(row, num_guesses, order, guesses);
}

double PredictionCounts::precision() const {
  return num_guesses == 0 ? 0.0
                          : static_cast<double>(num_useful) / static_cast<double>(num_guesses);
}

double PredictionCounts::recall() const {
  return num_wanted == 0 ? 0.0 : static_cast<double>(num_useful) / static_cast<double>(num_wanted);
}

}  // namespace moe::tiering
