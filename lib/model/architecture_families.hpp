#pragma once

// One function for each model_type, or group of them, that the architecture reader knows. Internal
// to the architecture reader.

#include <string>
#include <string_view>

#include "lib/model/architecture.hpp"
#include "lib/model/architecture_builder.hpp"
#include "lib/model/architecture_fields.hpp"

namespace moe::model {

struct FamilyContext {
  ArchitectureFields& fields;
  Architecture& architecture;
  ArchitectureBuilder& builder;
  std::string_view model_type;
};

// Sizes that every decoder has; reads and remembers what is missing.
struct DecoderDims {
  std::int32_t num_layers = 0;
  MixerSpec mixer;  // heads, kv heads, head dims
};
enum class HeadDim : std::uint8_t {
  kRequired,
  kFromHidden,  // the library defines hidden_size / num_attention_heads when it is absent
};
[[nodiscard]] DecoderDims read_decoder(FamilyContext& context, HeadDim head_dim);
// Ends the reading phase: throws when something is missing or heads do not divide.
void require_decoder(const FamilyContext& context, const DecoderDims& dims);
[[nodiscard]] FfnSpec read_experts(FamilyContext& context);
// A width that is a product of two fields; refused beyond what a matrix can have.
[[nodiscard]] std::int32_t checked_width(const ArchitectureFields& fields, std::string_view name,
                                         std::int64_t width);

[[nodiscard]] std::string layer_prefix(std::int32_t layer);  // "model.layers.3."
// What follows the last layer of a decoder: final norm and head.
void close_decoder(FamilyContext& context, std::string_view norm = "model.norm");

// The families of lib/engine, counted through ModelConfig and the expected tensors. `family` is the
// model_type whose rules apply.
void build_engine_family(FamilyContext& context, std::string_view family);

void build_arctic(FamilyContext& context);
void build_dbrx(FamilyContext& context);
void build_deepseek_mha(FamilyContext& context);
void build_deepseek_sparse(FamilyContext& context);
void build_deepseek_v4(FamilyContext& context);
void build_dots1(FamilyContext& context);
void build_ernie(FamilyContext& context);
void build_gemma4(FamilyContext& context);
void build_grok1(FamilyContext& context);
void build_hunyuan(FamilyContext& context);
void build_jamba(FamilyContext& context);
void build_llama4(FamilyContext& context);
void build_mimo(FamilyContext& context);
void build_minimax_m2(FamilyContext& context);
void build_minimax_text_01(FamilyContext& context);
void build_nemotron_h(FamilyContext& context);
void build_nllb(FamilyContext& context);
void build_qwen3_next(FamilyContext& context);
void build_switch(FamilyContext& context);

// Fills architecture.quant and the format of every weight. `inner` is the text part of a wrapper,
// or the whole.
void apply_quantization(Architecture& architecture, const json::Json& outer,
                        const json::Json& inner, const std::string& where,
                        const ArchitectureOptions& options);

}  // namespace moe::model
