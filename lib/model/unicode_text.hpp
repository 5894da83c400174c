#pragma once

// Characters of UTF-8 text: reading, classes, normalization forms. Built on utf8proc.

#include <cstdint>
#include <string>
#include <string_view>

namespace moe::model {

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;  // bytes
};

// The first and the last character of valid, non-empty UTF-8 text.
[[nodiscard]] CodePoint first_code_point(std::string_view text);
[[nodiscard]] CodePoint last_code_point(std::string_view text);
void append_code_point(char32_t value, std::string& out);

[[nodiscard]] bool is_white_space(char32_t value);  // property White_Space
[[nodiscard]] bool is_numeric(char32_t value);      // general category N
[[nodiscard]] bool is_punctuation(char32_t value);  // general category P, or ASCII punctuation
[[nodiscard]] bool is_mark(char32_t value);         // general category M
[[nodiscard]] bool is_word(char32_t value);         // what \w means: Alphabetic, M, Nd, Pc, joiners

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8. Time is linear in its length but for the sorting of long runs of
// combining marks.
[[nodiscard]] std::string normalize(std::string_view text, NormalizationForm form);

// Character by character, without context (a final sigma is an ordinary sigma).
[[nodiscard]] std::string lowercase(std::string_view text);

}  // namespace moe::model
