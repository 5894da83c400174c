#pragma once

// Parameters and bytes of a model: from its config alone (a formula over the expected tensors), and
// as found in the files of a bound checkpoint. Touches no file.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/model/bound_model.hpp"
#include "lib/model/config.hpp"
#include "lib/model/expected_tensors.hpp"

namespace moe::model {

struct LayerCounts {
  bool is_moe = false;
  std::int64_t total = 0;
  std::int64_t active = 0;  // with top_k of the routed experts
  std::int64_t one_expert = 0;
};

struct ParameterCounts {
  std::array<std::int64_t, kNumParts> by_part{};  // index: Part
  std::int64_t total = 0;
  // Parameters that one token meets: everything but the routed experts, of which top_k /
  // num_experts. Three conventions are published under the same name: all of them (Mixtral's 12.9
  // B), without the input embedding, whose matrix is looked up, not multiplied (gpt-oss's 3.6 B,
  // DeepSeek-V3's 36.7 B), and without embedding and head. A tied matrix counts once, as the head.
  std::int64_t active_with_embeddings = 0;
  std::int64_t active_without_input_embedding = 0;
  std::int64_t active_without_embeddings = 0;
  std::vector<LayerCounts> layers;

  [[nodiscard]] std::int64_t of(Part part) const { return by_part[static_cast<std::size_t>(part)]; }
};

[[nodiscard]] ParameterCounts count_parameters(const ModelConfig& config);
[[nodiscard]] ParameterCounts count_parameters(const BoundModel& model);

struct ByteCounts {
  std::array<std::int64_t, kNumParts> by_part{};
  std::int64_t total = 0;
  // "BF16", "F8_E4M3", "MXFP4" (codes and block exponents), ...; scales of FP8 under their own
  // type. Most bytes first.
  std::vector<std::pair<std::string, std::int64_t>> by_dtype;
  std::vector<std::int64_t> layers;
  std::int64_t one_expert = 0;  // bytes of one routed expert of the first MoE layer

  [[nodiscard]] std::int64_t of(Part part) const { return by_part[static_cast<std::size_t>(part)]; }
};

// What the weights of this config take when everything that its quantization_config leaves alone is
// stored as `dtype` (F32, F16 or BF16); correction biases are F32.
[[nodiscard]] ByteCounts count_bytes(const ModelConfig& config, Dtype dtype);
// What they take in the files.
[[nodiscard]] ByteCounts count_bytes(const BoundModel& model);

// One line for each part in which the two differ.
[[nodiscard]] std::vector<std::string> compare_counts(const ParameterCounts& by_config,
                                                      const ParameterCounts& by_files);

// True when quantization_config leaves this tensor as it is, although its storage could be
// quantised. Names in modules_to_not_convert are module names, whole or with "*".
[[nodiscard]] bool is_left_unquantized(const ModelConfig& config, const ExpectedTensor& tensor);

// Every weight of the model once (a tied head is the embedding). layer is -1 outside of layers,
// expert -1 outside of routed experts.
struct WeightVisitor {
  std::function<void(Part part, std::int32_t layer, std::int32_t expert, const MatrixView& view)>
      matrix;
  std::function<void(Part part, std::int32_t layer, std::int32_t expert, const VectorView& view)>
      vector;
};
void for_each_weight(const BoundModel& model, const WeightVisitor& visitor);

// Bytes of a view in its file, scales included.
[[nodiscard]] std::int64_t view_bytes(const MatrixView& view);
[[nodiscard]] std::int64_t view_bytes(const VectorView& view);

}  // namespace moe::model
