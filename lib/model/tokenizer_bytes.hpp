#pragma once

// The printable alphabet of byte-level tokenizers (GPT-2): each of the 256 bytes has one character.
// 188 printable bytes (! to ~, U+00A1 to U+00AC, U+00AE to U+00FF) stand for themselves, the other
// 68 are U+0100, U+0101, ... in the order of the bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moe::model::tokenizer_detail {

[[nodiscard]] char32_t character_of_byte(std::uint8_t byte);
[[nodiscard]] std::optional<std::uint8_t> byte_of_character(char32_t character);

// Bytes -> printable characters in UTF-8.
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);
void append_byte_alphabet(std::string_view bytes, std::string& out);
// The bytes that a token stands for; nothing if a character is not of the alphabet.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view token);

}  // namespace moe::model::tokenizer_detail
