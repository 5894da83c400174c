// gpt-oss: sinks, alternating windows, biases everywhere, a clamped activation.

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {

void parse_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);  // hidden_act says silu, which is not what the experts do
  if (!reader.has("head_dim")) reader.fail("head_dim", "missing; expected an integer");
  read_gqa(reader, config);
  RopeOptions rope;
  rope.head_dim = config.attention.head_dim;
  rope.dim_key = "head_dim";
  // Without it the library versions disagree: YaRN with the numbers of the release, or none.
  if (!reader.has("rope_scaling") && !reader.has("rope_parameters")) {
    reader.fail("rope_scaling", "missing; expected an object (or rope_parameters)");
  }
  read_rope(reader, config, rope);
  if (reader.has("layer_types")) {
    read_windows(reader, config, false);
  } else {  // even layers slide
    read_windows(reader, config, true);
    if (!reader.has("sliding_window"))
      reader.fail("sliding_window", "missing; expected an integer");
    for (std::size_t layer = 1; layer < config.layers.size(); layer += 2) {
      config.layers[layer].window = 0;
    }
  }
  read_experts(reader, config);
  config.moe.expert_intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
  config.moe.has_expert_bias = true;
  config.moe.router.score = ScoreFunction::kLogits;
  config.moe.router.has_logit_bias = true;
  config.activation = Activation::kGptOssGlu;
  config.swiglu_limit = reader.optional_number("swiglu_limit", {0.0, 1e6, true}).value_or(7.0);
  config.swiglu_alpha = reader.optional_number("swiglu_alpha", {0.0, 1e6, true}).value_or(1.702);
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", true);
  config.attention.has_sinks = true;
  reader.ignore({"initial_context_length"});
}

}  // namespace moe::model
