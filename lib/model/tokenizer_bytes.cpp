#include "lib/model/tokenizer_bytes.hpp"

#include <array>

#include "lib/model/unicode_text.hpp"

namespace moe::model::tokenizer_detail {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr std::size_t kStandIns = 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kFirstStandIn + kStandIns> byte{};
};

constexpr bool stands_for_itself(std::size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet{};
  alphabet.byte.fill(-1);
  char32_t next = kFirstStandIn;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char32_t c = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character.at(byte) = c;
    alphabet.byte.at(c) = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t character_of_byte(std::uint8_t byte) {
  return kAlphabet.character[byte];
}

std::optional<std::uint8_t> byte_of_character(char32_t character) {
  if (character >= kAlphabet.byte.size()) return std::nullopt;
  const std::int16_t byte = kAlphabet.byte[character];
  if (byte < 0) return std::nullopt;
  return static_cast<std::uint8_t>(byte);
}

void append_byte_alphabet(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    append_code_point(character_of_byte(static_cast<std::uint8_t>(byte)), out);
  }
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  append_byte_alphabet(bytes, out);
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  while (!token.empty()) {
    const CodePoint c = first_code_point(token);
    const auto byte = byte_of_character(c.value);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    token.remove_prefix(c.length);
  }
  return out;
}

}  // namespace moe::model::tokenizer_detail
