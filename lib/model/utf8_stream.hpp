#pragma once

// Bytes -> valid UTF-8, as early as it is decided.

#include <cstddef>
#include <string>
#include <string_view>

namespace moe::model {

// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Takes bytes in any portions and appends text to `out`. An incomplete but still valid sequence (at
// most 3 bytes) waits; bytes that can no longer become valid give one U+FFFD per maximal subpart
// (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts").
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  // Ends the sequence: a waiting tail becomes one U+FFFD.
  void flush(std::string& out);

  [[nodiscard]] std::string_view pending() const { return {pending_, pending_count_}; }
  void clear() { pending_count_ = 0; }

 private:
  char pending_[4] = {};
  std::size_t pending_count_ = 0;
};

// How a UTF-8 sequence begins at `text` (which must not be empty).
struct Utf8Prefix {
  std::size_t length = 0;  // bytes of the character, or of the maximal valid subpart (at least 1)
  bool complete = false;   // a whole character
  bool may_continue = false;  // not complete, and more bytes could still make it so
};
[[nodiscard]] Utf8Prefix utf8_prefix(std::string_view text);

// The text with every maximal invalid subpart replaced by U+FFFD.
[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

}  // namespace moe::model
