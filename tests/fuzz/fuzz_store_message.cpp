// What a peer sends to the TCP store, cut into pieces: messages come out, or an Error, nothing
// else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/comm/tcp_message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t piece = static_cast<std::size_t>(data[0]) + 1;
  bytes.remove_prefix(1);
  try {
    moe::comm::StoreMessageReader reader(1 << 16);
    while (!bytes.empty()) {
      reader.feed(bytes.substr(0, piece));
      bytes.remove_prefix(bytes.size() < piece ? bytes.size() : piece);
      while (const auto message = reader.next()) {
        (void)moe::comm::encode_message(*message);
        (void)moe::comm::decode_texts(message->body);
      }
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
