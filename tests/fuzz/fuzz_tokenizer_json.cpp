// A hostile tokenizer.json: refused with an Error or usable; never a crash, never invalid UTF-8.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/tokenizer.hpp"
#include "lib/model/utf8_stream.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto tokenizer = moe::model::Tokenizer::parse(
        std::string_view(reinterpret_cast<const char*>(data), size), "tokenizer.json");
    std::vector<std::int32_t> ids;
    for (const std::string_view text :
         {"", " a  b\r\n'll 123", "<s>x</s> \xE6\x97\xA5\xE6\x9C\xAC e\xCC\x81 \xF0\x9F\x98\x80"}) {
      const auto encoded = tokenizer.encode(text, true);
      for (const std::int32_t id : encoded) {
        if (!tokenizer.id_to_token(id)) std::abort();
      }
      ids.insert(ids.end(), encoded.begin(), encoded.end());
    }
    for (std::int32_t id = 0; id < 300; ++id) ids.push_back(id);
    moe::model::TokenStream stream(tokenizer, true);
    for (const std::int32_t id : ids) {
      if (!moe::is_utf8(stream.push(id))) std::abort();
    }
    if (!moe::is_utf8(stream.flush())) std::abort();
    if (!moe::is_utf8(tokenizer.decode(ids, false))) {
      std::abort();
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
