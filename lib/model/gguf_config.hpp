#pragma once

// The keys of a GGUF file as the configuration of a model. What an architecture does that no key
// says (which rotation, whether weights are renormalised) is a rule here, as in llama.cpp.

#include "lib/model/config.hpp"
#include "lib/model/gguf_file.hpp"

namespace moe::model {

// Throws Error(kInput) naming the key at fault, and the supported architectures for another one.
[[nodiscard]] ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace moe::model
