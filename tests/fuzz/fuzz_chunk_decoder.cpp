// Chunked bodies from arbitrary bytes: the same body, end and fault for the whole, byte by byte,
// and for pieces whose lengths the first byte chooses.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/client/chunk_decoder.hpp"

namespace {

struct Decoded {
  std::string body;
  std::size_t num_used = 0;
  moe::client::ChunkDecoder decoder;
  friend bool operator==(const Decoded&, const Decoded&) = default;
};

Decoded decode(std::string_view text, std::size_t piece_size) {
  Decoded decoded;
  while (decoded.num_used < text.size()) {
    const std::string_view piece = text.substr(decoded.num_used, piece_size);
    const std::size_t used = decoded.decoder.feed(piece, [&](std::string_view bytes) {
      MOE_CHECK(!bytes.empty());
      decoded.body.append(bytes);
    });
    decoded.num_used += used;
    if (used < piece.size()) break;
  }
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.empty()) return 0;
  const Decoded whole = decode(text, text.size());
  MOE_CHECK(whole == decode(text, 1));
  MOE_CHECK(whole == decode(text, std::size_t{data[0]} % 16 + 2));
  const moe::client::ChunkDecoder& decoder = whole.decoder;
  MOE_CHECK(whole.num_used == size || decoder.is_ended() || decoder.is_malformed());
  MOE_CHECK(!(decoder.is_ended() && decoder.is_malformed()));
  MOE_CHECK(whole.body.size() <= size);
  return 0;
}
