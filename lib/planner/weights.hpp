#pragma once

// Weight bytes on a rank: what each weight's split, the layout and kernel padding make of it.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/layout.hpp"

namespace moe::planner {

// MXFP4 kernels pad the matrices of an expert. Inferred from loaded sizes of gpt-oss-120b on one
// H100 (vllm issues 23278, 33155): Triton pads the width to 256, Marlin the input to 256 and the
// width to 128.
enum class KernelPad : std::uint8_t { kNone, kTriton, kMarlin };

struct WeightOptions {
  KernelPad pad = KernelPad::kNone;
  bool has_mtp = false;              // load the multi-token-prediction module
  std::int32_t vocab_multiple = 64;  // rows of embedding and head are padded to this
};

// The part of a weight that the fullest rank of a stage holds.
struct RankShare {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t bytes = 0;
};
[[nodiscard]] RankShare rank_share(const model::WeightGroup& group, const Layout& layout,
                                   const WeightOptions& options = {});

// Bytes of one layer on the fullest rank of its stage. One expert: of the slice on the rank.
struct LayerBytes {
  std::int64_t mixer = 0;  // projections, biases, their norms
  std::int64_t norm = 0;
  std::int64_t router = 0;
  std::int64_t experts = 0;        // all routed experts on the rank
  std::int64_t one_expert = 0;     // 0 in a dense layer
  std::int64_t local_experts = 0;  // count, redundant ones included
  std::int64_t shared = 0;
  std::int64_t dense = 0;
  [[nodiscard]] std::int64_t total() const {
    return mixer + norm + router + experts + shared + dense;
  }
};
[[nodiscard]] std::vector<LayerBytes> layer_bytes(const model::Architecture& architecture,
                                                  const Layout& layout,
                                                  const WeightOptions& options = {});

struct StageWeights {
  std::int32_t stage = 0;
  StageRange layers;
  std::array<std::int64_t, model::kNumParts> by_part{};  // on the fullest rank; index: Part
  std::int64_t mtp = 0;                                  // on the last stage
  std::int64_t worst_rank = 0;                           // sum of the above
  double mean_rank = 0.0;                                // over the ranks of the stage
};
[[nodiscard]] std::vector<StageWeights> stage_weights(const model::Architecture& architecture,
                                                      const Layout& layout,
                                                      const WeightOptions& options = {});

[[nodiscard]] KernelPad parse_kernel_pad(std::string_view name);

}  // namespace moe::planner
