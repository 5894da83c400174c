// RoPE fields: rope_theta + rope_scaling as published before transformers v5, rope_parameters
// since.

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

using json::Json;

constexpr NumberRange kThetaRange{1.0, 1e12, true};

// Both spellings as one object with the v5 names. "type" is the old name of "rope_type".
Json merged_parameters(ConfigReader& reader) {
  Json merged = Json::object();
  for (const std::string_view source : {"rope_scaling", "rope_parameters"}) {
    const Json* object = reader.find(source);
    if (object == nullptr) continue;
    if (!object->is_object()) reader.fail(source, "expected an object");
    for (const auto& [key, value] : object->items()) {
      if (value.is_null()) continue;
      if (value.is_object()) {
        reader.fail(source, fmt::format("\"{}\": parameters per layer type are not supported",
                                        printable(key)));
      }
      const std::string name = key == "type" ? "rope_type" : key;
      const auto [at, is_new] = merged.emplace(name, Json(value));
      if (!is_new && *at != value) {
        reader.fail(source,
                    fmt::format("{} is given twice with different values", printable(name)));
      }
    }
  }
  for (const std::string_view name :
       {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}) {
    const Json* outer = reader.find(name);
    if (outer == nullptr) continue;
    const auto [at, is_new] = merged.emplace(std::string(name), Json(*outer));
    if (!is_new && *at != *outer) {
      reader.fail(name, fmt::format("{} contradicts the value in the RoPE parameters",
                                    printable(outer->dump())));
    }
  }
  return merged;
}

// 0.1 mscale ln(factor) + 1, the temperature of YaRN; 1 where the context is not extended.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(ConfigReader& rope_reader, RopeConfig& rope) {
  rope.kind = RopeKind::kYarn;
  rope.factor = rope_reader.number("factor", {1.0, 1e6});
  rope.original_max_position_embeddings =
      rope_reader.integer("original_max_position_embeddings", kContextRange);
  rope.beta_fast = rope_reader.optional_number("beta_fast", kFactorRange).value_or(32.0);
  rope.beta_slow = rope_reader.optional_number("beta_slow", kFactorRange).value_or(1.0);
  if (rope.beta_fast < rope.beta_slow) {
    rope_reader.fail("beta_fast",
                     fmt::format("{} is below beta_slow {}", rope.beta_fast, rope.beta_slow));
  }
  rope.truncate = rope_reader.boolean_or("truncate", true);
  const auto attention_factor = rope_reader.optional_number("attention_factor", kFactorRange);
  const auto mscale = rope_reader.optional_number("mscale", {0.0, 1e3});
  const auto mscale_all_dim = rope_reader.optional_number("mscale_all_dim", {0.0, 1e3});
  if (attention_factor) {
    rope.attention_scaling = *attention_factor;
  } else if (mscale.value_or(0.0) != 0.0 && mscale_all_dim.value_or(0.0) != 0.0) {
    rope.attention_scaling =
        yarn_mscale(rope.factor, *mscale) / yarn_mscale(rope.factor, *mscale_all_dim);
  } else {
    rope.attention_scaling = yarn_mscale(rope.factor, 1.0);
  }
}

void read_llama3(ConfigReader& rope_reader, RopeConfig& rope) {
  rope.kind = RopeKind::kLlama3;
  rope.factor = rope_reader.number("factor", {1.0, 1e6});
  rope.low_freq_factor = rope_reader.number("low_freq_factor", kFactorRange);
  rope.high_freq_factor = rope_reader.number("high_freq_factor", kFactorRange);
  if (rope.high_freq_factor < rope.low_freq_factor) {
    rope_reader.fail("high_freq_factor", fmt::format("{} is below low_freq_factor {}",
                                                     rope.high_freq_factor, rope.low_freq_factor));
  }
  rope.original_max_position_embeddings =
      rope_reader.integer("original_max_position_embeddings", kContextRange);
}

void read_longrope(ConfigReader& rope_reader, RopeConfig& rope) {
  rope.kind = RopeKind::kLongrope;
  rope.original_max_position_embeddings =
      rope_reader.integer("original_max_position_embeddings", kContextRange);
  const auto factors = [&](std::string_view key) {
    auto values = rope_reader.optional_numbers(key, kFactorRange);
    if (!values) rope_reader.fail(key, "missing; expected a list of numbers");
    if (std::ssize(*values) != rope.dim / 2) {
      rope_reader.fail(key, fmt::format("{} entries, expected one for each of the {} rotated pairs",
                                        values->size(), rope.dim / 2));
    }
    return *std::move(values);
  };
  rope.short_factor = factors("short_factor");
  rope.long_factor = factors("long_factor");
  rope.short_mscale = rope_reader.number("short_mscale", kFactorRange);
  rope.long_mscale = rope_reader.number("long_mscale", kFactorRange);
  rope_reader.ignore({"factor"});
}

std::int32_t rotary_dim(ConfigReader& reader, ConfigReader& rope_reader,
                        const RopeOptions& options) {
  const auto partial = rope_reader.optional_number("partial_rotary_factor", {0.0, 1.0, true});
  if (partial && *partial != 1.0 && !options.allow_partial) {
    rope_reader.fail("partial_rotary_factor",
                     fmt::format("{} is not supported for this model_type", *partial));
  }
  const auto dim =
      static_cast<std::int32_t>(options.head_dim * partial.value_or(options.default_partial));
  if (dim < 2 || dim % 2 != 0) {
    reader.fail(options.dim_key, fmt::format("{} rotary dimensions, expected an even number of at "
                                             "least 2",
                                             dim));
  }
  return dim;
}

}  // namespace

void read_rope(ConfigReader& reader, ModelConfig& config, const RopeOptions& options) {
  RopeConfig& rope = config.attention.rope;
  rope.style = options.style;
  const Json merged = merged_parameters(reader);
  const bool is_v5 = reader.has("rope_parameters");
  ConfigReader rope_reader(merged, reader.where(), is_v5 ? "rope_parameters." : "rope_scaling.");
  if (merged.contains("rope_theta") || !options.default_theta) {
    ConfigReader theta_reader(merged, reader.where());
    rope.theta = theta_reader.number("rope_theta", kThetaRange);
  } else {
    rope.theta = *options.default_theta;
  }
  rope.dim = rotary_dim(reader, rope_reader, options);
  if (!merged.contains("rope_type")) {  // numbers of a method that is not named
    for (const std::string_view key : {"factor", "short_factor"}) {
      if (!merged.contains(key)) continue;
      rope_reader.fail("rope_type", fmt::format("missing, but there is {}", key));
    }
  }
  const std::string kind = rope_reader.optional_text("rope_type").value_or("default");
  if (kind == "linear") {
    rope.kind = RopeKind::kLinear;
    rope.factor = rope_reader.number("factor", kFactorRange);
  } else if (kind == "llama3") {
    read_llama3(rope_reader, rope);
  } else if (kind == "yarn") {
    read_yarn(rope_reader, rope);
  } else if (kind == "longrope" && options.allow_longrope) {
    read_longrope(rope_reader, rope);
  } else if (kind != "default") {
    rope_reader.fail("rope_type",
                     fmt::format("\"{}\" is not supported for model_type {}; supported: "
                                 "default, linear, llama3, yarn{}",
                                 printable(kind), config.model_type,
                                 options.allow_longrope ? ", longrope" : ""));
  }
  rope_reader.ignore(
      {"rope_theta", "original_max_position_embeddings", "mscale", "mscale_all_dim"});
  for (const std::string& key : rope_reader.unknown_keys()) {
    config.warnings.push_back(fmt::format("RoPE parameter {} is not known: ignored", key));
  }
}

double mla_mscale(ConfigReader& reader, const ModelConfig& config) {
  if (config.attention.rope.kind != RopeKind::kYarn) return 1.0;
  const Json merged = merged_parameters(reader);
  ConfigReader rope_reader(merged, reader.where());
  const double all_dim = rope_reader.optional_number("mscale_all_dim", {0.0, 1e3}).value_or(0.0);
  return all_dim == 0.0 ? 1.0 : yarn_mscale(config.attention.rope.factor, all_dim);
}

}  // namespace moe::model
