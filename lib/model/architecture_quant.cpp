// quantization_config, hf_quant_config.json and a format given by the user: which weight is stored
// how.

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/model/architecture_families.hpp"
#include "lib/model/module_pattern.hpp"

namespace moe::model {
namespace {

using json::Json;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return text;
}

WeightFormat integer_format(std::int64_t bits, std::int64_t group, bool has_zeros) {
  std::string name = fmt::format("int{}", bits);
  if (group > 0) name += fmt::format("-g{}", group);
  if (!has_zeros) name += "-sym";
  return parse_weight_format(name);
}

std::int64_t need_bits(ArchitectureFields& quant, ArchitectureFields::Names names) {
  const std::int64_t bits = quant.need(names, {1, 32});
  quant.require_complete();
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    quant.fail(*names.begin(), fmt::format("{} bits, expected 2, 3, 4 or 8", bits));
  }
  return bits;
}

std::vector<std::string> list_of(ArchitectureFields& quant, ArchitectureFields::Names names) {
  for (const std::string_view name : names) {
    if (auto list = quant.texts(name)) return *std::move(list);
  }
  return {};
}

void read_fp8(ArchitectureFields& quant, QuantRules& rules) {
  const auto block = quant.integers("weight_block_size", {1, 65536});
  if (block && block->size() != 2) {
    quant.fail("weight_block_size", fmt::format("expected two sizes, found {}", block->size()));
  }
  if (block) {
    rules.linear = parse_weight_format("fp8-block128");
    rules.linear.name = fmt::format("fp8-block{}x{}", (*block)[0], (*block)[1]);
    rules.linear.block_rows = (*block)[0];
    rules.linear.block_cols = (*block)[1];
  } else {
    rules.linear = parse_weight_format("fp8");
  }
  rules.exclusions = list_of(quant, {"modules_to_not_convert", "ignored_layers"});
}

void read_gptq(ArchitectureFields& quant, QuantRules& rules) {
  const std::int64_t bits = need_bits(quant, {"bits"});
  const std::int64_t group = quant.need({"group_size"}, {-1, 65536});
  quant.require_complete();
  // Packed zero points and the group index are in the files whatever sym and desc_act say.
  rules.linear = integer_format(bits, std::max<std::int64_t>(group, 0), true);
  rules.linear.has_group_index = true;
  rules.has_quantized_head = quant.boolean_or("lm_head", false);
  rules.exclusions = list_of(quant, {"modules_to_not_convert"});
}

void read_awq(ArchitectureFields& quant, QuantRules& rules) {
  const std::int64_t bits = need_bits(quant, {"bits", "w_bit"});
  const std::int64_t group = quant.need({"group_size", "q_group_size"}, {-1, 65536});
  quant.require_complete();
  rules.linear =
      integer_format(bits, std::max<std::int64_t>(group, 0), quant.boolean_or("zero_point", true));
  rules.exclusions = list_of(quant, {"modules_to_not_convert"});
}

// One entry of config_groups of compressed-tensors.
WeightFormat compressed_format(ArchitectureFields& weights) {
  const std::int64_t bits = weights.need({"num_bits"}, {1, 32});
  const std::string type = weights.text({"type"}).value_or("int");
  const std::string strategy = weights.text({"strategy"}).value_or("tensor");
  const std::int64_t group = weights.integer_or({"group_size"}, 0, {-1, 65536});
  const bool is_symmetric = weights.boolean_or("symmetric", true);
  weights.require_complete();
  if (type == "float" && bits == 8) {
    if (strategy == "block") {
      const auto block = weights.integers("block_structure", {1, 65536});
      if (!block || block->size() != 2) {
        weights.fail("block_structure", "missing or not two sizes, although strategy is block");
      }
      WeightFormat format = parse_weight_format("fp8-block128");
      format.name = fmt::format("fp8-block{}x{}", (*block)[0], (*block)[1]);
      format.block_rows = (*block)[0];
      format.block_cols = (*block)[1];
      return format;
    }
    return parse_weight_format(strategy == "channel" ? "fp8-channel" : "fp8");
  }
  if (type == "float" && bits == 4) {
    if (group == 16) return parse_weight_format("nvfp4");
    if (group == 32) return parse_weight_format("mxfp4");
    weights.fail("group_size", fmt::format("{} with 4-bit floats, expected 16 or 32", group));
  }
  if (type == "int" && (bits == 4 || bits == 8)) {
    return integer_format(bits, std::max<std::int64_t>(group, 0), !is_symmetric);
  }
  weights.fail("num_bits",
               fmt::format("{} bits of type \"{}\" are not known", bits, printable(type)));
}

void read_compressed_tensors(ArchitectureFields& quant, QuantRules& rules) {
  rules.exclusions = list_of(quant, {"ignore"});
  auto groups = quant.object("config_groups");
  if (!groups) {
    quant.add_missing("quantization_config.config_groups");
    quant.require_complete();
  }
  // Packed codes have their shape beside them, two 64-bit numbers a matrix.
  const bool is_packed = quant.text({"format"}).value_or("") == "pack-quantized";
  bool has_linear = false;
  for (const auto& [name, value] : groups->json().items()) {
    auto group = groups->object(name);
    if (!group) continue;
    auto weights = group->object("weights");
    if (!weights) continue;  // activations only
    WeightFormat format = compressed_format(*weights);
    if (is_packed) format.tensor_bits = 128;
    for (const std::string& target : list_of(*group, {"targets"})) {
      if (target == "Linear") {
        rules.linear = format;
        has_linear = true;
      } else {
        rules.overrides.push_back({target, format});
      }
    }
  }
  if (!has_linear) rules.linear = rules.dense;
  const Json& cache =
      quant.json().contains("kv_cache_scheme") ? quant.json()["kv_cache_scheme"] : Json(nullptr);
  if (cache.is_object()) rules.kv_cache_dtype = "fp8";
}

// NVIDIA ModelOpt, in config.json or in hf_quant_config.json.
void read_modelopt(ArchitectureFields& quant, QuantRules& rules) {
  const auto algorithm = quant.text({"quant_algo"});
  if (!algorithm) {
    quant.add_missing("quantization.quant_algo");
    quant.require_complete();
  }
  const std::string name = lower(*algorithm);
  const std::int64_t group = quant.integer_or({"group_size"}, 0, {0, 65536});
  if (name == "nvfp4" || name == "nvfp4_awq") {
    rules.linear = parse_weight_format("nvfp4");
    if (group > 0) rules.linear.block_cols = group;
    rules.linear.tensor_bits = 64;  // second-level scale and input scale
  } else if (name == "fp8") {
    rules.linear = parse_weight_format("fp8");
  } else if (name == "fp8_pb_wo" || name == "fp8_block") {
    rules.linear = parse_weight_format("fp8-block128");
  } else if (name == "fp8_per_channel_per_token") {
    rules.linear = parse_weight_format("fp8-channel");
  } else if (name == "w4a16_awq" || name == "w4a8_awq") {
    rules.linear = integer_format(4, group > 0 ? group : 128, false);
  } else if (name == "mxfp4") {
    rules.linear = parse_weight_format("mxfp4");
  } else {
    quant.fail("quant_algo",
               fmt::format("\"{}\" is not known; known: NVFP4, FP8, FP8_PB_WO, W4A16_AWQ, MXFP4",
                           printable(*algorithm)));
  }
  rules.exclusions = list_of(quant, {"exclude_modules", "ignore"});
  if (const auto cache = quant.text({"kv_cache_quant_algo"})) rules.kv_cache_dtype = lower(*cache);
}

void read_bitsandbytes(ArchitectureFields& quant, QuantRules& rules) {
  rules.exclusions = list_of(quant, {"llm_int8_skip_modules"});
  if (quant.boolean_or("load_in_4bit", false)) {
    WeightFormat format = parse_weight_format("int4-g64-sym");
    format.name = "nf4";
    format.scale_bits = 32;
    if (quant.boolean_or("bnb_4bit_use_double_quant", false)) format.scale_bits = 8.125;
    rules.linear = format;
  } else {
    rules.linear = parse_weight_format("int8");
    rules.linear.name = "llm-int8";
    rules.linear.scale_bits = 32;
    rules.linear.zero_bits = 0;
  }
}

void read_method(ArchitectureFields& quant, const std::string& method, QuantRules& rules) {
  rules.method = method;
  if (method == "fp8") {
    read_fp8(quant, rules);
  } else if (method == "fbgemm_fp8") {
    rules.linear = parse_weight_format("fp8-channel");
    rules.exclusions = list_of(quant, {"modules_to_not_convert"});
  } else if (method == "gptq") {
    read_gptq(quant, rules);
  } else if (method == "awq") {
    read_awq(quant, rules);
  } else if (method == "compressed-tensors") {
    read_compressed_tensors(quant, rules);
  } else if (method == "mxfp4") {
    rules.linear = parse_weight_format("mxfp4");
    rules.is_experts_only = true;
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    read_modelopt(quant, rules);
  } else if (method == "bitsandbytes") {
    read_bitsandbytes(quant, rules);
  } else {
    quant.fail("quant_method",
               fmt::format("\"{}\" is not known; known: fp8, fbgemm_fp8, gptq, awq, "
                           "compressed-tensors, mxfp4, modelopt, bitsandbytes",
                           printable(method)));
  }
}

WeightFormat dense_format(Architecture& architecture, const Json& outer, const Json& inner,
                          const std::string& where) {
  for (const Json* object : {&inner, &outer}) {
    for (const char* name : {"torch_dtype", "dtype"}) {
      const auto found = object->find(name);
      if (found == object->end() || !found->is_string()) continue;
      const std::string text = found->get<std::string>();
      for (const auto& [known, format] : {std::pair{"bfloat16", "bf16"},
                                          {"float16", "fp16"},
                                          {"float32", "fp32"},
                                          {"auto", "bf16"}}) {
        if (text == known || text == std::string("torch.") + known) {
          return parse_weight_format(format);
        }
      }
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: {}: \"{}\" is not known; known: bfloat16, float16, float32",
                              where, name, printable(text)));
    }
  }
  architecture.notes.emplace_back("torch_dtype is absent: 16 bits for what is not quantised");
  return parse_weight_format("bf16");
}

const Json* quant_object(const Json& outer, const Json& inner) {
  for (const Json* object : {&inner, &outer}) {
    for (const char* name : {"quantization_config", "compression_config"}) {
      const auto found = object->find(name);
      if (found != object->end() && found->is_object()) return &*found;
    }
  }
  return nullptr;
}

void read_config_rules(const Json& quant, const std::string& where, QuantRules& rules) {
  ArchitectureFields fields(quant, where, "quantization_config.");
  std::string method = fields.text({"quant_method"}).value_or("");
  if (method.empty() && fields.has("quant_algo")) method = "modelopt";
  if (method.empty()) {
    fields.add_missing("quantization_config.quant_method");
    fields.require_complete();
  }
  read_method(fields, method, rules);
}

void read_hf_quant(const std::string& text, const std::string& where, QuantRules& rules) {
  const std::string source = where + " with hf_quant_config.json";
  const Json document = json::parse(text, source);
  const auto found = document.is_object() ? document.find("quantization") : document.end();
  if (found == document.end() || !found->is_object()) {
    throw Error(ErrorCode::kInput, source + ": expected an object \"quantization\"");
  }
  ArchitectureFields fields(*found, source, "quantization.");
  rules.method = "modelopt";
  read_modelopt(fields, rules);
}

void read_given(const std::string& name, QuantRules& rules) {
  const WeightFormat format = parse_weight_format(name);
  const std::string cache = rules.kv_cache_dtype;
  const WeightFormat dense = rules.dense;
  rules = {};
  rules.method = "given";
  rules.kv_cache_dtype = cache;
  rules.dense = format.is_quantized ? dense : format;
  rules.linear = rules.expert = format;
  rules.is_everything = format.is_quantized && format.row_multiple > 1;
  rules.is_experts_only = name == "mxfp4";
}

void resolve(std::vector<WeightGroup>& groups, const QuantRules& rules, const std::string& where) {
  const ModulePatterns exclusions(rules.exclusions, where);
  std::vector<ModulePatterns> overrides;
  for (const QuantOverride& entry : rules.overrides) {
    overrides.emplace_back(std::vector<std::string>{entry.pattern}, where);
  }
  for (WeightGroup& group : groups) {
    group.format = rules.dense;
    const bool is_matrix = group.rows > 1;
    const bool is_table = group.part == Part::kEmbedding || group.part == Part::kHead;
    if (rules.is_everything) {
      // GGUF: vectors and routers F32, everything else in blocks.
      if (is_matrix && (group.is_linear || is_table)) {
        group.format = rules.linear;
        group.fixed_bits = 0;
      } else {
        group.fixed_bits = 32;
      }
      continue;
    }
    const bool is_head = group.part == Part::kHead && rules.has_quantized_head;
    if (!is_matrix || !(group.is_linear || is_head)) continue;
    const bool is_expert = group.part == Part::kRoutedExperts;
    if (rules.is_experts_only && !is_expert) continue;
    if (exclusions.matches(group.name)) continue;
    group.format = is_expert ? rules.expert : rules.linear;
    for (std::size_t at = 0; at < overrides.size(); ++at) {
      if (!overrides[at].matches(group.name)) continue;
      group.format = rules.overrides[at].format;
      break;
    }
  }
}

}  // namespace

void apply_quantization(Architecture& architecture, const Json& outer, const Json& inner,
                        const std::string& where, const ArchitectureOptions& options) {
  QuantRules& rules = architecture.quant;
  rules.method = "none";
  rules.dense = dense_format(architecture, outer, inner, where);
  rules.linear = rules.dense;
  const Json* quant = quant_object(outer, inner);
  if (quant != nullptr) read_config_rules(*quant, where, rules);
  if (!options.quant_config_json.empty()) read_hf_quant(options.quant_config_json, where, rules);
  rules.expert = rules.linear;
  // Files that state another type for the routed experts.
  ArchitectureFields fields(inner, where);
  if (const auto expert = fields.text({"expert_dtype"})) {
    if (*expert != "fp4") {
      fields.fail("expert_dtype",
                  fmt::format("\"{}\" is not known; known: fp4", printable(*expert)));
    }
    rules.expert = parse_weight_format("mxfp4");
    // Checkpoints with such experts store the scales of their FP8 blocks as one exponent byte.
    if (rules.method == "fp8") rules.linear.scale_bits = 8;
  }
  if (!options.weight_format.empty()) read_given(options.weight_format, rules);
  resolve(architecture.weights, rules, where);
  resolve(architecture.mtp_weights, rules, where);
}

}  // namespace moe::model
