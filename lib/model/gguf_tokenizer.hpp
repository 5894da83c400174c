#pragma once

// The tokenizer that a GGUF file carries.

#include <optional>

#include "lib/model/gguf_file.hpp"
#include "lib/model/tokenizer.hpp"

namespace moe::model {

// nullopt when the file has none. Throws Error(kInput) naming the key at fault: a model or a
// pre-tokenizer that is not known is refused, not replaced by another.
[[nodiscard]] std::optional<Tokenizer> load_gguf_tokenizer(const GgufFile& file);

}  // namespace moe::model
