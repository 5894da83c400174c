// A data set of texts from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/client/request_source.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::client::TextSource source(moe::client::parse_conversations(text, "fuzz", 3),
                                         moe::client::Api::kChat, {}, 4, 1);
    (void)source.make(0, {});
    (void)source.make(1, {"an answer"});
  } catch (const moe::Error&) {
  }
  return 0;
}
