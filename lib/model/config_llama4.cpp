// Llama-4, the text model: alone (llama4_text) or inside the multimodal wrapper (llama4), whose
// other parts are left out by rule.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

// A layer has experts when moe_layers lists it, or when it is the last of a step.
void read_moe_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t step =
      reader.optional_integer("interleave_moe_layer_step", {1, 4096}).value_or(1);
  const auto listed = reader.optional_integers("moe_layers", {0, config.num_hidden_layers - 1});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layers[static_cast<std::size_t>(layer)].is_moe =
        listed ? std::ranges::find(*listed, layer) != listed->end() : (layer + 1) % step == 0;
  }
  if (std::ranges::none_of(config.layers, &LayerConfig::is_moe)) {
    reader.fail(listed ? "moe_layers" : "interleave_moe_layer_step", "leaves no layer of experts");
  }
}

// 1 in no_rope_layers is a layer with RoPE. An absent or empty list: every fourth has none.
void read_rope_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t interval =
      reader.optional_integer("no_rope_layer_interval", {1, 4096}).value_or(4);
  const auto listed = reader.optional_integers("no_rope_layers", {0, 1});
  if (listed && !listed->empty() && listed->size() != config.layers.size()) {
    reader.fail("no_rope_layers", fmt::format("{} entries for {} layers (num_hidden_layers)",
                                              listed->size(), config.layers.size()));
  }
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    config.layers[layer].has_rope = listed && !listed->empty()
                                        ? (*listed)[layer] == 1
                                        : (static_cast<std::int64_t>(layer) + 1) % interval != 0;
  }
}

// Layers with RoPE see their chunk, unless layer_types says otherwise.
void read_chunks(ConfigReader& reader, ModelConfig& config) {
  auto chunk = reader.optional_integer("attention_chunk_size", {1, INT32_MAX});
  if (!chunk && !reader.is_null("attention_chunk_size")) chunk = 8192;  // of the family
  const auto types = reader.optional_texts("layer_types");
  if (types && types->size() != config.layers.size()) {
    reader.fail("layer_types", fmt::format("{} entries for {} layers (num_hidden_layers)",
                                           types->size(), config.layers.size()));
  }
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    bool is_chunked = config.layers[layer].has_rope;
    if (types) {
      const std::string& type = (*types)[layer];
      is_chunked = type == "chunked_attention";
      if (!is_chunked && type != "full_attention") {
        reader.fail("layer_types", fmt::format("\"{}\" is not supported; supported: "
                                               "full_attention, chunked_attention",
                                               printable(type)));
      }
      if (is_chunked && !chunk) {
        reader.fail("attention_chunk_size", "missing, but layer_types has chunked_attention");
      }
    }
    if (is_chunked && chunk) config.layers[layer].chunk = static_cast<std::int32_t>(*chunk);
  }
}

// A number in the first files of the family, a boolean since.
bool tunes_temperature(ConfigReader& reader) {
  constexpr std::string_view kKey = "attn_temperature_tuning";
  const json::Json* value = reader.find(kKey);
  if (value != nullptr && value->is_number_integer()) {
    return reader.integer(kKey, {0, INT32_MAX}) != 0;
  }
  return reader.boolean_or(kKey, true);
}

void read_text(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  AttentionConfig& attention = config.attention;
  RopeOptions rope;
  rope.style = RopeStyle::kPairs;
  rope.head_dim = attention.head_dim;
  rope.dim_key = "head_dim";
  read_rope(reader, config, rope);
  read_rope_layers(reader, config);
  read_chunks(reader, config);
  attention.has_qkv_bias = attention.has_o_bias = reader.boolean_or("attention_bias", false);
  if (reader.boolean("use_qk_norm")) attention.qk_norm = QkNorm::kUnitAfterRope;
  if (tunes_temperature(reader)) {
    attention.temperature_scale =
        reader.optional_number("attn_scale", {0.0, 1e3, true}).value_or(0.1);
    attention.temperature_floor =
        reader.optional_number("floor_scale", {0.0, 1e9, true}).value_or(8192.0);
  }
  reader.ignore({"attn_scale", "floor_scale", "for_llm_compressor", "sliding_window"});
  read_experts(reader, config);
  config.moe.expert_intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  config.moe.shared_intermediate_size = config.moe.expert_intermediate_size;
  config.intermediate_size = reader.integer32("intermediate_size_mlp", kWidthRange);
  read_moe_layers(reader, config);
  config.moe.router.score = ScoreFunction::kLogitsSigmoid;
  config.moe.weight_on_input = true;
  reader.ignore({"router_jitter_noise"});
}

}  // namespace

void parse_llama4(ConfigReader& reader, ModelConfig& config) {
  if (config.model_type == "llama4_text") {
    read_text(reader, config);
    return;
  }
  auto text = reader.optional_object("text_config");
  if (!text) reader.fail("text_config", "missing; expected the object of the text model");
  text->require_text("model_type", {"llama4_text"});
  read_text(*text, config);
  config.tensor_prefix = "language_model.";
  for (const std::string& key : text->unknown_keys()) {
    config.warnings.push_back("text_config." + key + " is not known: ignored");
  }
  config.warnings.push_back("a multimodal checkpoint: its text model is run, the rest is ignored");
  reader.ignore({"vision_config", "architectures", "torch_dtype", "dtype", "transformers_version",
                 "boi_token_index", "eoi_token_index", "image_token_index", "tie_word_embeddings"});
}

}  // namespace moe::model
