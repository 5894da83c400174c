// Any bytes in any portions: valid UTF-8 comes out, the same as for the whole.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/base/text.hpp"
#include "lib/model/utf8_stream.hpp"

// The first byte says how the rest is cut: its bits, round and round, are "cut here".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t cuts = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  moe::model::Utf8Stream stream;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (((cuts >> (i % 8)) & 1U) == 0) continue;
    stream.push(bytes.substr(begin, i + 1 - begin), out);
    begin = i + 1;
    if (stream.pending().size() > 3) std::abort();
  }
  stream.push(bytes.substr(begin), out);
  stream.flush(out);
  if (out != moe::model::to_valid_utf8(bytes)) std::abort();
  if (!moe::is_utf8(out)) std::abort();
  const bool was_valid = moe::is_utf8(bytes);
  if (was_valid && out != bytes) std::abort();
  return 0;
}
