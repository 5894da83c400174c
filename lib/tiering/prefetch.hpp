#pragma once

// Predicting which experts the next layer will ask for, from what this layer chose.
//
// Co-occurrence: how often expert b of layer l + 1 followed expert a of layer l in a training
// trace; the guesses are the largest sums over the experts just chosen.
//
// Activation matrix (the idea of MoE-Infinity, arXiv 2401.14361): one matrix [layers, experts] of
// counts a sequence; the stored matrix most similar to the running one says what comes next. Here
// similarity is the cosine over the layers seen so far of rows scaled to 1, the observed prefix and
// nothing else.

#include <cstdint>
#include <span>
#include <vector>

namespace moe::tiering {

class CooccurrenceModel {
 public:
  CooccurrenceModel(std::int32_t num_layers, std::int32_t num_experts);

  // One token: chosen[layer * top_k ...], -1 for an unused slot.
  void learn(std::span<const std::int32_t> chosen, std::int32_t top_k);
  // Guesses for layer + 1, best first, lower index first where equal; at most num_guesses, and only
  // experts that have followed at least once.
  void predict(std::int32_t layer, std::span<const std::int32_t> chosen, std::int32_t num_guesses,
               std::vector<std::int32_t>& guesses);

 private:
  std::int32_t num_layers_;
  std::int32_t num_experts_;
  std::vector<std::int64_t> follows_;  // [layers - 1, experts, experts]
  std::vector<std::int64_t> scores_;   // scratch
  std::vector<std::int32_t> order_;
};

class ActivationLibrary {
 public:
  // Keeps at most `capacity` matrices; a further one replaces the oldest.
  ActivationLibrary(std::int32_t num_layers, std::int32_t num_experts, std::int32_t capacity);

  // counts[layers, experts] of one sequence.
  void add(std::span<const std::int64_t> counts);
  [[nodiscard]] bool is_empty() const { return matrices_.empty(); }
  // Guesses for layer + 1 after `layer` was seen in the running matrix.
  void predict(std::int32_t layer, std::span<const std::int64_t> running, std::int32_t num_guesses,
               std::vector<std::int32_t>& guesses) const;

 private:
  std::int32_t num_layers_;
  std::int32_t num_experts_;
  std::int32_t capacity_;
  std::size_t oldest_ = 0;
  std::vector<std::vector<float>> matrices_;  // rows scaled to length 1
};

// How good guesses were.
struct PredictionCounts {
  std::int64_t num_guesses = 0;
  std::int64_t num_useful = 0;  // guesses that were asked for
  std::int64_t num_wanted = 0;

  [[nodiscard]] double precision() const;  // 0 without guesses
  [[nodiscard]] double recall() const;     // 0 when nothing was wanted
};

}  // namespace moe::tiering
