#include <algorithm>

#include <fmt/format.h>

#include "lib/base/text.hpp"
#include "lib/model/config_parts.hpp"
#include "lib/model/config_quant_int.hpp"

namespace moe::model {
namespace {

void read_fp8(ConfigReader& quant, ModelConfig& config) {
  config.quant.method = QuantMethod::kFp8Block;
  quant.require_text("fmt", {"e4m3"});
  quant.require_text("activation_scheme", {"dynamic"});
  const auto block = quant.optional_integers("weight_block_size", {1, 65536});
  if (!block) {
    quant.fail("weight_block_size",
               "missing; FP8 weights are supported with block scales only, not per tensor");
  }
  if (block->size() != 2) {
    quant.fail("weight_block_size", fmt::format("expected two sizes, found {}", block->size()));
  }
  config.quant.block_rows = static_cast<std::int32_t>((*block)[0]);
  config.quant.block_cols = static_cast<std::int32_t>((*block)[1]);
}

}  // namespace

void read_quantization(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kSupported = "fp8, mxfp4, gptq, awq, compressed-tensors";
  auto quant = reader.optional_object("quantization_config");
  const auto compression = reader.optional_object("compression_config");  // its older name
  if (!quant) quant = compression;
  if (!quant) return;
  auto method = quant->optional_text("quant_method");
  if (!method && compression) method = "compressed-tensors";
  if (!method) quant->fail("quant_method", fmt::format("missing; supported: {}", kSupported));
  if (*method == "fp8" && config.family != Family::kGptOss) {
    read_fp8(*quant, config);
  } else if (*method == "mxfp4" && config.family == Family::kGptOss) {
    config.quant.method = QuantMethod::kMxfp4;
    for (const auto& [key, width] : {std::pair{"hidden_size", config.hidden_size},
                                     {"intermediate_size", config.moe.expert_intermediate_size}}) {
      if (width % 32 != 0) {
        reader.fail(key,
                    fmt::format("{} is not a multiple of the 32 values of an MXFP4 block", width));
      }
    }
  } else if (*method == "gptq") {
    read_gptq(*quant, config);
  } else if (*method == "awq") {
    read_awq(*quant, config);
  } else if (*method == "compressed-tensors") {
    read_compressed_tensors(*quant, config);
    return;
  } else if (*method == "fp8" || *method == "mxfp4") {
    quant->fail("quant_method", fmt::format("\"{}\" is not supported for model_type {}", *method,
                                            config.model_type));
  } else {
    quant->fail("quant_method", fmt::format("quant_method \"{}\" is not supported; supported: {}",
                                            printable(*method), kSupported));
  }
  config.quant.modules_not_converted =
      quant->optional_texts("modules_to_not_convert").value_or(std::vector<std::string>{});
}

}  // namespace moe::model
