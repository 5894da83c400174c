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
  [[nodiscard]] std::size_t num_matrices() const { return matrices_.size(); }
  [[nodiscard]] std::int32_t num_layers() const { return num_layers_; }
  // Row of a stored matrix, [experts], scaled to length 1 (or all zero).
  [[nodiscard]] std::span<const float> row(std::size_t matrix, std::int32_t layer) const;

 private:
  std::int32_t num_layers_;
  std::int32_t num_experts_;
  std::int32_t capacity_;
  std::size_t oldest_ = 0;
  std::vector<std::vector<float>> matrices_;
};

// One running sequence against a library that does not change meanwhile.
class ActivationTracker {
 public:
  explicit ActivationTracker(const ActivationLibrary& library, std::int32_t num_experts);

  void begin_sequence();
  // The experts of one layer of one step; layers in order from 0, step after step.
  void observe(std::int32_t layer, std::span<const std::int32_t> chosen);
  // Guesses for the layer after the one observed last; none from an empty library.
  void predict(std::int32_t num_guesses, std::vector<std::int32_t>& guesses);

 private:
  const ActivationLibrary* library_;
  std::int32_t num_experts_;
  std::int32_t layer_ = -1;
  std::vector<double> counts_;      // [layers, experts] of the sequence
  std::vector<double> squares_;     // [layers]
  std::vector<double> products_;    // [matrices, layers], counts x stored row
  std::vector<double> similarity_;  // [matrices], over the layers seen in this step
  std::vector<std::int32_t> order_;
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
