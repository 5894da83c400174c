#pragma once

// How many bytes of a text each of its tokens stands for.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lib/model/tokenizer.hpp"

namespace moe::app {

// For a byte-level tokenizer the length of each token in its byte alphabet, exact. For any other,
// or when the tokenizer changed the text (Unicode normalisation), the bytes that streaming the
// tokens emits: exact in sum, off by a few bytes where a character spans tokens.
[[nodiscard]] std::vector<std::int32_t> token_byte_lengths(const model::Tokenizer& tokenizer,
                                                           std::span<const std::int32_t> ids,
                                                           std::string_view text);

}  // namespace moe::app
