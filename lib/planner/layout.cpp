#include "lib/planner/layout.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::planner {
namespace {

using model::FfnKind;
using model::FfnSpec;
using model::MixerKind;
using model::MixerSpec;
using model::Split;
using model::WeightGroup;

std::string sizes_problem(const model::Architecture& architecture, const Layout& layout) {
  for (const auto& [name, value] :
       {std::pair{"tp", layout.tp}, {"dp", layout.dp}, {"pp", layout.pp}, {"ep", layout.ep}}) {
    if (value < 1) return fmt::format("{} is {}, expected at least 1", name, value);
    if (value > 65536) return fmt::format("{} is {}, expected at most 65536", name, value);
  }
  if (layout.redundant_experts < 0) return "a negative number of redundant experts";
  if (std::int64_t{layout.tp} * layout.dp > 65536) return "more than 65536 GPUs in a stage";
  if (layout.stage_gpus() % layout.ep != 0) {
    return fmt::format("ep {} does not divide the {} GPUs of a stage (tp x dp)", layout.ep,
                       layout.stage_gpus());
  }
  const auto layers = static_cast<std::int32_t>(architecture.layers.size());
  if (layout.pp > layers) {
    return fmt::format("{} pipeline stages for {} layers", layout.pp, layers);
  }
  if (layout.redundant_experts > 0 && layout.ep == 1) {
    return "redundant experts need expert parallelism";
  }
  if (layout.ep > 1 && !architecture.is_moe()) return "expert parallelism of a dense model";
  return {};
}

std::string mixer_problem(const MixerSpec& mixer, std::int32_t tp) {
  const auto divides = [tp](std::int64_t heads, std::string_view what) -> std::string {
    if (heads % tp == 0) return {};
    return fmt::format("tp {} does not divide the {} {}", tp, heads, what);
  };
  switch (mixer.kind) {
    case MixerKind::kNone:
      return {};
    case MixerKind::kGqa: {
      std::string problem = divides(mixer.num_heads, "attention heads");
      if (problem.empty() && mixer.num_kv_heads % tp != 0 && tp % mixer.num_kv_heads != 0) {
        problem = fmt::format("tp {} neither divides the {} key-value heads nor is a multiple", tp,
                              mixer.num_kv_heads);
      }
      return problem;
    }
    case MixerKind::kMla:
    case MixerKind::kCompressed:
      return divides(mixer.num_heads, "attention heads");
    case MixerKind::kDeltaNet:
    case MixerKind::kMamba1:
    case MixerKind::kMamba2:
    case MixerKind::kLightning:
      return divides(mixer.state.heads, "heads of a recurrent layer");
  }
  MOE_CHECK(false);
}

std::string ffn_problem(const FfnSpec& ffn, const Layout& layout) {
  if (ffn.dense_width % layout.tp != 0) {
    return fmt::format("tp {} does not divide the dense width {}", layout.tp, ffn.dense_width);
  }
  if (ffn.kind != FfnKind::kMoe) return {};
  if (ffn.expert_width % layout.expert_tp() != 0) {
    return fmt::format("{} slices of an expert do not divide its width {}", layout.expert_tp(),
                       ffn.expert_width);
  }
  if (!layout.has_replicated_shared && ffn.shared_width % layout.tp != 0) {
    return fmt::format("tp {} does not divide the shared width {}", layout.tp, ffn.shared_width);
  }
  if (layout.ep > ffn.num_experts + layout.redundant_experts) {
    return fmt::format("ep {} for {} experts", layout.ep, ffn.num_experts);
  }
  return {};
}

// A scale of an FP8 block would belong to two ranks.
std::string block_problem(const WeightGroup& group, const Layout& layout) {
  const std::int64_t block =
      group.axis == model::SplitAxis::kRows ? group.format.block_rows : group.format.block_cols;
  if (block <= 1 || group.format.block_rows <= 1) return {};
  std::int64_t parts = 1;
  if (group.split == Split::kExperts) parts = layout.expert_tp();
  if (group.split == Split::kWidth) {
    const bool is_whole = group.part == model::Part::kSharedExperts && layout.has_replicated_shared;
    parts = is_whole ? 1 : layout.tp;
  }
  if (parts == 1 || group.units <= 1) return {};
  if (group.units % parts == 0 && group.units / parts % block == 0) return {};
  return fmt::format("{}: {} slices of width {} cut the {} rows of an FP8 block", group.name, parts,
                     group.units, block);
}

}  // namespace

std::string describe(const Layout& layout) {
  if (layout.gpus() == 1) return "1 GPU";
  std::string text = fmt::format("TP{}", layout.tp);
  if (layout.dp > 1) text += fmt::format(" DP{}", layout.dp);
  if (layout.ep > 1) text += fmt::format(" EP{}", layout.ep);
  if (layout.pp > 1) text += fmt::format(" PP{}", layout.pp);
  if (layout.redundant_experts > 0) text += fmt::format(" +{}", layout.redundant_experts);
  return text;
}

std::string layout_problem(const model::Architecture& architecture, const Layout& layout) {
  if (std::string problem = sizes_problem(architecture, layout); !problem.empty()) return problem;
  const model::LayerSpec* previous = nullptr;
  for (const model::LayerSpec& layer : architecture.layers) {
    // Most layers equal the one before.
    if (previous != nullptr && *previous == layer) continue;
    previous = &layer;
    if (std::string problem = mixer_problem(layer.mixer, layout.tp); !problem.empty()) {
      return problem;
    }
    if (std::string problem = ffn_problem(layer.ffn, layout); !problem.empty()) return problem;
  }
  if (architecture.quant.linear.block_rows > 1 || architecture.quant.expert.block_rows > 1) {
    for (const WeightGroup& group : architecture.weights) {
      if (std::string problem = block_problem(group, layout); !problem.empty()) return problem;
    }
  }
  return {};
}

StageRange stage_layers(std::int32_t num_layers, std::int32_t pp, std::int32_t stage) {
  MOE_CHECK(pp >= 1 && stage >= 0 && stage < pp && num_layers >= pp);
  const std::int32_t base = num_layers / pp;
  const std::int32_t remainder = num_layers % pp;
  // The stages pp-2, pp-3, ... take one more; the last never does unless it is the only one.
  const auto extra = [&](std::int32_t at) {
    return at < pp - 1 && at >= pp - 1 - remainder ? 1 : 0;
  };
  StageRange range;
  for (std::int32_t at = 0; at <= stage; ++at) {
    range.begin = range.end;
    range.end = range.begin + base + extra(at);
  }
  return range;
}

}  // namespace moe::planner
