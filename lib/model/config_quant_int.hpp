#pragma once

// Integer quantisation methods of quantization_config. Internal to the config reader.

#include "lib/model/config.hpp"
#include "lib/model/config_reader.hpp"

namespace moe::model {

void read_gptq(ConfigReader& quant, ModelConfig& config);
void read_awq(ConfigReader& quant, ModelConfig& config);
void read_compressed_tensors(ConfigReader& quant, ModelConfig& config);

}  // namespace moe::model
