#pragma once

// The "normalizer" of tokenizer.json.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lib/model/tokenizer_json.hpp"
#include "lib/model/tokenizer_pattern.hpp"

namespace moe::model::tokenizer_detail {

// A stretch of text on its way through the tokenizer.
struct NormalizedText {
  std::string text;
  // How many bytes at the front come from the first character of the user's text: a Metaspace with
  // prepend_scheme "first" asks for it.
  std::size_t start_bytes = 0;
  // A chain of replacements can grow a text without end; more than this is refused.
  std::size_t max_bytes = 0;
};

// Room for every honest normalizer (a character becomes 18 at most), an end for the others.
[[nodiscard]] constexpr std::size_t max_growth(std::size_t text_bytes) {
  return (std::size_t{16} << 20) + 64 * text_bytes;
}

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, MatchScratch& scratch) const = 0;
};

// Null for a null node. Refuses an unknown type by name.
[[nodiscard]] std::unique_ptr<const Normalizer> parse_normalizer(const json::Json* node,
                                                                 const std::string& where);

}  // namespace moe::model::tokenizer_detail
