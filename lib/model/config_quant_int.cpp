#include "lib/model/config_quant_int.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"

namespace moe::model {
namespace {

constexpr IntRange kBitsRange{1, 32};
constexpr IntRange kGroupRange{-1, 1 << 20};

void read_bits(ConfigReader& reader, std::string_view key, std::initializer_list<int> supported,
               QuantConfig& quant) {
  quant.bits = reader.integer32(key, kBitsRange);
  if (std::ranges::find(supported, quant.bits) != supported.end()) return;
  reader.fail(key, fmt::format("{} bits are not supported; supported: {}", quant.bits,
                               supported.size() == 1 ? "4" : "4, 8"));
}

// -1, absent or null: one group a row.
void read_group_size(ConfigReader& reader, QuantConfig& quant) {
  const std::int64_t size = reader.optional_integer("group_size", kGroupRange).value_or(-1);
  if (size == 0) reader.fail("group_size", "expected -1 or at least 1, found 0");
  quant.group_size = size < 0 ? 0 : static_cast<std::int32_t>(size);
}

[[noreturn]] void fail_strategy(ConfigReader& weights, const std::string& strategy,
                                std::string_view supported) {
  weights.fail("strategy", fmt::format("\"{}\" is not supported; supported: {}",
                                       printable(strategy), supported));
}

void read_int_weights(ConfigReader& weights, QuantConfig& quant) {
  weights.require_text("type", {"int"});
  read_bits(weights, "num_bits", {4, 8}, quant);
  quant.is_symmetric = weights.boolean_or("symmetric", true);
  const std::string strategy = weights.optional_text("strategy").value_or("tensor");
  if (strategy == "group") {
    read_group_size(weights, quant);
    if (quant.group_size == 0) weights.fail("group_size", "expected a size for strategy group");
  } else if (strategy == "channel") {
    quant.group_size = 0;
  } else if (strategy == "tensor") {
    quant.group_size = -1;
  } else {
    fail_strategy(weights, strategy, "tensor, channel, group");
  }
}

void read_fp8_weights(ConfigReader& weights, QuantConfig& quant) {
  weights.require_text("type", {"float"});
  if (const auto bits = weights.integer32("num_bits", kBitsRange); bits != 8) {
    weights.fail("num_bits", fmt::format("{} bits are not supported in format float-quantized, "
                                         "expected 8",
                                         bits));
  }
  if (!weights.boolean_or("symmetric", true)) {
    weights.fail("symmetric", "FP8 weights with zero points are not supported");
  }
  const std::string strategy = weights.optional_text("strategy").value_or("tensor");
  if (strategy == "block") {
    const auto block = weights.optional_integers("block_structure", {1, 65536});
    if (!block || block->size() != 2) {
      weights.fail("block_structure", "expected two sizes for strategy block");
    }
    quant.block_rows = static_cast<std::int32_t>((*block)[0]);
    quant.block_cols = static_cast<std::int32_t>((*block)[1]);
  } else if (strategy == "channel" || strategy == "tensor") {
    quant.block_rows = strategy == "channel" ? 1 : 0;
    quant.block_cols = 0;
  } else {
    fail_strategy(weights, strategy, "tensor, channel, block");
  }
}

// One entry of config_groups: its weights, with activations that may be quantised (they are not
// here: products use them as they are).
void read_weights(ConfigReader& group, QuantConfig& quant) {
  auto weights = group.optional_object("weights");
  if (!weights) group.fail("weights", "missing; expected an object");
  if (weights->boolean_or("dynamic", false)) {
    weights->fail("dynamic", "weights with scales of their own time are not supported");
  }
  if (quant.method == QuantMethod::kFp8Block) {
    read_fp8_weights(*weights, quant);
  } else {
    read_int_weights(*weights, quant);
  }
  group.require_text("format", {"pack-quantized", "int-quantized", "float-quantized"});
  group.ignore({"targets", "input_activations", "output_activations"});
}

bool are_quantised_alike(const QuantConfig& a, const QuantConfig& b) {
  return a.bits == b.bits && a.group_size == b.group_size && a.is_symmetric == b.is_symmetric &&
         a.block_rows == b.block_rows && a.block_cols == b.block_cols;
}

QuantMethod compressed_method(ConfigReader& quant) {
  const std::string format = quant.optional_text("format").value_or("");
  if (format == "pack-quantized") return QuantMethod::kPackedInt;
  if (format == "int-quantized") return QuantMethod::kInt8;
  if (format == "float-quantized") return QuantMethod::kFp8Block;
  quant.fail("format", fmt::format("\"{}\" is not supported; supported: pack-quantized, "
                                   "int-quantized, float-quantized",
                                   printable(format)));
}

}  // namespace

void read_gptq(ConfigReader& quant, ModelConfig& config) {
  QuantConfig& out = config.quant;
  out.method = QuantMethod::kGptq;
  read_bits(quant, "bits", {4, 8}, out);
  read_group_size(quant, out);
  out.is_symmetric = quant.boolean_or("sym", true);
  quant.require_text("checkpoint_format", {"gptq", "gptq_v2"});
  out.zeros_are_stored_less_one =
      quant.optional_text("checkpoint_format").value_or("gptq") == "gptq";
  if (quant.has("dynamic")) {
    quant.fail("dynamic", "settings per module are not supported for GPTQ");
  }
}

void read_awq(ConfigReader& quant, ModelConfig& config) {
  QuantConfig& out = config.quant;
  out.method = QuantMethod::kAwq;
  // AutoAWQ's own name of the field, and the one that the library writes.
  read_bits(quant, quant.has("w_bit") ? "w_bit" : "bits", {4}, out);
  read_group_size(quant, out);
  quant.require_text("version", {"gemm", "GEMM"});
  out.is_symmetric = !quant.boolean_or("zero_point", true);
}

void read_compressed_tensors(ConfigReader& quant, ModelConfig& config) {
  const QuantMethod method = compressed_method(quant);
  quant.require_text("quantization_status", {"compressed"});
  if (quant.has("sparsity_config")) {
    const auto sparsity = quant.optional_object("sparsity_config");
    if (sparsity && sparsity->has("format")) {
      quant.fail("sparsity_config", "sparse weights are not supported");
    }
  }
  auto groups = quant.optional_object("config_groups");
  if (!groups) quant.fail("config_groups", "missing; expected an object");
  QuantConfig& out = config.quant;
  out.method = method;
  if (method == QuantMethod::kFp8Block) out.fp8_scale_suffix = "_scale";
  const std::vector<std::string> names = groups->unknown_keys();
  if (names.empty()) quant.fail("config_groups", "is empty");
  for (const std::string& name : names) {
    auto group = groups->optional_object(name);
    if (!group) groups->fail(name, "expected an object");
    QuantConfig found = out;
    read_weights(*group, found);
    if (name != names.front() && !are_quantised_alike(found, out)) {
      groups->fail(name, "differs from the first group; one way to quantise is supported");
    }
    out = found;
  }
  if (out.method == QuantMethod::kInt8 && out.bits != 8) {
    groups->fail(names.front(),
                 fmt::format("{} bits in format int-quantized, expected 8", out.bits));
  }
  out.modules_not_converted = quant.optional_texts("ignore").value_or(std::vector<std::string>{});
}

}  // namespace moe::model
