#include "lib/planner/weights.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"

namespace moe::planner {
namespace {

using model::Part;
using model::SplitAxis;
using model::WeightGroup;

constexpr std::int64_t kTritonWidth = 256;
constexpr std::int64_t kMarlinWidth = 128;
constexpr std::int64_t kMarlinInput = 256;

// Whole pieces of the split axis on the fullest rank.
std::int64_t pieces_on_rank(const WeightGroup& group, const Layout& layout) {
  switch (group.split) {
    case model::Split::kNone:
    case model::Split::kVocab:
      return group.units;
    case model::Split::kHeads:
      return div_ceil(group.units, layout.tp);
    case model::Split::kKvHeads:
      return std::max<std::int64_t>(1, div_ceil(group.units, layout.tp));
    case model::Split::kWidth:
      if (group.part == Part::kSharedExperts && layout.has_replicated_shared) return group.units;
      return div_ceil(group.units, layout.tp);
    case model::Split::kExperts:
      return group.units > 1 ? div_ceil(group.units, layout.expert_tp()) : 1;
  }
  MOE_CHECK(false);
}

// Marlin and Triton kernels of MXFP4 round the shapes of an expert up.
void pad_expert(const WeightGroup& group, KernelPad pad, std::int64_t pieces, RankShare& share) {
  const std::int64_t width = pad == KernelPad::kTriton ? kTritonWidth : kMarlinWidth;
  std::int64_t& split = group.axis == SplitAxis::kRows ? share.rows : share.cols;
  std::int64_t& other = group.axis == SplitAxis::kRows ? share.cols : share.rows;
  if (group.units > 1) split = split / pieces * align_up(pieces, width);
  if (pad == KernelPad::kMarlin) other = align_up(other, kMarlinInput);
}

std::int64_t bytes_of(const WeightGroup& group, const RankShare& share) {
  if (group.fixed_bits > 0) {
    return (share.count * share.rows * share.cols * group.fixed_bits + 7) / 8;
  }
  return model::matrix_bytes(group.format, share.rows, share.cols, share.count);
}

// Mean over the ranks of a stage; never above the fullest rank.
double mean_bytes(const WeightGroup& group, const Layout& layout, const RankShare& share) {
  const auto worst = static_cast<double>(share.bytes);
  if (group.split == model::Split::kExperts && layout.ep > 1) {
    const double experts = static_cast<double>(group.count + layout.redundant_experts);
    return worst * experts / (static_cast<double>(share.count) * layout.ep);
  }
  if (group.split == model::Split::kHeads || group.split == model::Split::kWidth) {
    const std::int64_t pieces = pieces_on_rank(group, layout);
    if (pieces == group.units) return worst;
    return worst * static_cast<double>(group.units) /
           (static_cast<double>(pieces) * static_cast<double>(layout.tp));
  }
  return worst;
}

bool is_on_stage(const model::Architecture& architecture, const WeightGroup& group,
                 const Layout& layout, const StageWeights& stage) {
  if (group.layer >= 0) return group.layer >= stage.layers.begin && group.layer < stage.layers.end;
  const bool is_first = stage.stage == 0;
  const bool is_last = stage.stage == layout.pp - 1;
  if (group.part == Part::kEmbedding) return is_first || (is_last && architecture.has_tied_head);
  return is_last;
}

}  // namespace

RankShare rank_share(const WeightGroup& group, const Layout& layout, const WeightOptions& options) {
  RankShare share;
  share.count = group.count;
  share.rows = group.rows;
  share.cols = group.cols;
  std::int64_t& axis = group.axis == SplitAxis::kRows ? share.rows : share.cols;
  const std::int64_t pieces = pieces_on_rank(group, layout);
  if (group.split == model::Split::kVocab) {
    axis = div_ceil(align_up(axis, options.vocab_multiple), layout.tp);
  } else if (pieces != group.units) {
    axis = div_ceil(axis * pieces, group.units);
  }
  if (group.split == model::Split::kExperts && layout.ep > 1) {
    share.count = div_ceil(group.count + layout.redundant_experts, layout.ep);
  }
  if (options.pad != KernelPad::kNone && group.split == model::Split::kExperts &&
      group.format.name == "mxfp4") {
    pad_expert(group, options.pad, pieces, share);
  }
  share.bytes = bytes_of(group, share);
  return share;
}

std::vector<LayerBytes> layer_bytes(const model::Architecture& architecture, const Layout& layout,
                                    const WeightOptions& options) {
  std::vector<LayerBytes> layers(architecture.layers.size());
  for (const WeightGroup& group : architecture.weights) {
    if (group.layer < 0) continue;
    LayerBytes& layer = layers[static_cast<std::size_t>(group.layer)];
    const RankShare share = rank_share(group, layout, options);
    switch (group.part) {
      case Part::kAttention:
        layer.mixer += share.bytes;
        break;
      case Part::kNorm:
        layer.norm += share.bytes;
        break;
      case Part::kRouter:
        layer.router += share.bytes;
        break;
      case Part::kRoutedExperts:
        layer.experts += share.bytes;
        layer.one_expert += share.bytes / share.count;
        layer.local_experts = share.count;
        break;
      case Part::kSharedExperts:
        layer.shared += share.bytes;
        break;
      case Part::kDense:
      case Part::kEmbedding:
      case Part::kHead:
        layer.dense += share.bytes;
        break;
    }
  }
  return layers;
}

std::vector<StageWeights> stage_weights(const model::Architecture& architecture,
                                        const Layout& layout, const WeightOptions& options) {
  std::vector<StageWeights> stages(static_cast<std::size_t>(layout.pp));
  for (std::int32_t at = 0; at < layout.pp; ++at) {
    StageWeights& stage = stages[static_cast<std::size_t>(at)];
    stage.stage = at;
    stage.layers =
        stage_layers(static_cast<std::int32_t>(architecture.layers.size()), layout.pp, at);
  }
  for (const WeightGroup& group : architecture.weights) {
    const RankShare share = rank_share(group, layout, options);
    const double mean = mean_bytes(group, layout, share);
    for (StageWeights& stage : stages) {
      if (!is_on_stage(architecture, group, layout, stage)) continue;
      stage.by_part[static_cast<std::size_t>(group.part)] += share.bytes;
      stage.worst_rank += share.bytes;
      stage.mean_rank += mean;
    }
  }
  if (!options.has_mtp) return stages;
  StageWeights& last = stages.back();
  for (const WeightGroup& group : architecture.mtp_weights) {
    const RankShare share = rank_share(group, layout, options);
    last.mtp += share.bytes;
    last.worst_rank += share.bytes;
    last.mean_rank += mean_bytes(group, layout, share);
  }
  return stages;
}

KernelPad parse_kernel_pad(std::string_view name) {
  if (name == "none") return KernelPad::kNone;
  if (name == "triton") return KernelPad::kTriton;
  if (name == "marlin") return KernelPad::kMarlin;
  throw Error(ErrorCode::kUsage,
              fmt::format("kernel padding \"{}\" is not known; known: none, triton, marlin",
                          printable(name)));
}

}  // namespace moe::planner
