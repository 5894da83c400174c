#pragma once

// Every tensor that a config asks for, with its published name, shape, place and what it may be
// stored as. The binder looks them up, the accounting counts them, the writer writes them.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lib/model/config.hpp"
#include "lib/model/safetensors.hpp"

namespace moe::model {

// What a tensor belongs to, for counting parameters and bytes.
enum class Part : std::uint8_t {
  kEmbedding,
  kAttention,  // projections, biases, sinks, norms of q, k and latents
  kRouter,     // weight, bias, correction bias
  kRoutedExperts,
  kSharedExperts,  // with the shared gate
  kDense,
  kNorm,
  kHead,
};
inline constexpr std::size_t kNumParts = 8;
[[nodiscard]] std::string_view part_name(Part part);

// The place of a tensor in BoundModel.
enum class Slot : std::uint8_t {
  kEmbedding,
  kFinalNorm,
  kFinalNormBias,
  kLmHead,
  kLmHeadBias,
  kInputNorm,
  kInputNormBias,
  kPostAttentionNorm,
  kPostAttentionNormBias,
  kQkv,  // q, k and v, one after another
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kSinks,
  kQA,
  kQB,
  kQANorm,
  kKvA,
  kKvB,
  kKvANorm,
  kDenseGate,
  kDenseUp,
  kDenseDown,
  kRouter,
  kRouterBias,
  kCorrectionBias,
  kExpertGate,  // one expert's
  kExpertUp,
  kExpertDown,
  kExpertsGateUp,  // all experts of a layer, gate and up together
  kExpertsGate,    // all experts of a layer
  kExpertsUp,
  kExpertsDown,
  kExpertsGateUpBias,
  kExpertsDownBias,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedExpertGate,  // the vector of the sigmoid
};

enum class Storage : std::uint8_t {
  kPlain,         // a vector, or a matrix that is never quantised (router, embedding)
  kLinear,        // [out, in]; FP8 with a scale tensor where the config says so
  kExpertsOutIn,  // [experts, out, in]; gate_up: rows 0..I-1 gate; FP8 likewise
  kExpertsInOut,  // [experts, in, out]; gate_up: even columns gate (gpt-oss), or halves (Llama-4)
  kExpertsRows,   // [experts * width, hidden], width being the expert's: out, in of gate and up;
                  // in, out of down (DBRX)
  kExpertsMxfp4,  // logical [experts, out, in], stored as NAME_blocks and NAME_scales; gate_up:
                  // even rows gate
};

struct ExpectedTensor {
  std::string name;
  Slot slot = Slot::kEmbedding;
  Part part = Part::kEmbedding;
  Storage storage = Storage::kPlain;
  Shape shape;               // logical
  std::int32_t layer = -1;   // -1: not of a layer
  std::int32_t expert = -1;  // -1: not of one expert
};

// How a family names its routed experts below "model.layers.L."; one of several per family.
struct MoeNames {
  std::string_view router;   // without ".weight"
  std::string_view experts;  // prefix of "E.{gate,up,down}.weight"; empty when fused
  std::string_view gate, up, down;
  std::string_view fused_gate_up, fused_down;  // whole names; empty when per expert
};

// The schemes of a family; the first is how it is published. Empty for dense families.
[[nodiscard]] std::span<const MoeNames> moe_name_schemes(Family family);

// The scheme that the files follow, the published one when none is recognised.
[[nodiscard]] const MoeNames* choose_moe_names(
    const ModelConfig& config, const std::function<bool(const std::string&)>& has_tensor);

// Calls visit for every tensor in the order of the model. `names` may be null for a dense model.
void visit_expected_tensors(const ModelConfig& config, const MoeNames* names,
                            const std::function<void(const ExpectedTensor&)>& visit);

// A tensor that is not part of the model and may be skipped: the rule in words, else empty.
[[nodiscard]] std::string_view ignore_rule(const ModelConfig& config, std::string_view name);

// Name and shape of the scales of an FP8 tensor of the shape [out, in] or [experts, out, in]:
// [.., ceil(out / block_rows), ceil(in / block_cols)], or [1] for one scale a matrix.
[[nodiscard]] std::string fp8_scale_name(const QuantConfig& quant, std::string_view tensor);
[[nodiscard]] Shape fp8_scale_shape(const QuantConfig& quant, const Shape& tensor);

}  // namespace moe::model
