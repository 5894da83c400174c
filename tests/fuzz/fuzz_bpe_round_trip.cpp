// A byte-level tokenizer gives any UTF-8 text back, by decode() and by a stream.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "lib/model/tokenizer.hpp"
#include "lib/model/tokenizer_bytes.hpp"
#include "lib/model/utf8_stream.hpp"

namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// All 256 bytes, a few merges over them, the pattern of GPT-2, one special token.
moe::model::Tokenizer make_tokenizer() {
  using moe::model::tokenizer_detail::to_byte_alphabet;
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    vocabulary += json_string(to_byte_alphabet({&raw, 1})) + ':' + std::to_string(byte) + ',';
  }
  std::string merges;
  int id = 256;
  const std::pair<const char*, const char*> kMerges[] = {
      {"e", "r"},   {" ", "t"},       {"t", "h"},           {" t", "h"}, {" ", " "},
      {"\n", "\n"}, {"\xF0", "\x9F"}, {"\xF0\x9F", "\x98"}, {"1", "2"},  {"th", "er"}};
  for (const auto& [left, right] : kMerges) {
    const std::string merged = std::string(left) + right;
    vocabulary += json_string(to_byte_alphabet(merged)) + ':' + std::to_string(id++) + ',';
    merges += '[' + json_string(to_byte_alphabet(left)) + ',' +
              json_string(to_byte_alphabet(right)) + "],";
  }
  vocabulary.pop_back();
  merges.pop_back();
  return moe::model::Tokenizer::parse(
      R"({"added_tokens": [{"id": 300, "content": "<|end|>", "special": true}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
          "decoder": {"type": "ByteLevel"},
          "model": {"type": "BPE", "vocab": {)" +
          vocabulary + R"(}, "merges": [)" + merges + "]}}",
      "tokenizer.json");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moe::model::Tokenizer tokenizer = make_tokenizer();
  const std::string text = moe::model::to_valid_utf8({reinterpret_cast<const char*>(data), size});
  const auto ids = tokenizer.encode(text, false);
  if (tokenizer.decode(ids, false) != text) std::abort();
  moe::model::TokenStream stream(tokenizer, false);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  if (streamed != text) std::abort();
  return 0;
}
