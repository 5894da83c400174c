#pragma once

// Messages of the TCP store, and a reader for what arrives from a socket: bytes of anybody, cut
// anywhere. A message is a header of 28 bytes, little endian, and a body:
//   magic "MOES", u16 version, u16 kind, u32 rank, u32 sequence, u32 bytes of the body,
//   u64 FNV-1a of these 20 bytes and the body.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::comm {

enum class StoreMessageKind : std::uint16_t {
  kHello = 1,    // who comes: texts {ranks of the job, what must agree, who}
  kWelcome = 2,  // all ranks are there
  kRefusal = 3,  // the reason, in words; the connection ends
  kShare = 4,    // one rank's text of an exchange
  kShares = 5,   // all of them
  kFailure = 6,  // the sender gives up; the reason, in words
};

struct StoreMessage {
  StoreMessageKind kind = StoreMessageKind::kHello;
  std::uint32_t rank = 0;  // of the sender
  std::uint32_t sequence = 0;
  std::string body;
};

inline constexpr std::size_t kMaxHelloBytes = 4096;
inline constexpr std::size_t kMaxStoreBytes = std::size_t{256} << 20;

// The body must not be longer than kMaxStoreBytes (checked).
[[nodiscard]] std::string encode_message(const StoreMessage& message);

// Texts in one body and back. decode throws Error(kInput) for anything that encode does not make.
[[nodiscard]] std::string encode_texts(const std::vector<std::string>& texts);
[[nodiscard]] std::vector<std::string> decode_texts(std::string_view body);

// Bytes go in as they come, messages come out. Holds no more than max_body and a header, plus what
// one feed() brought.
class StoreMessageReader {
 public:
  explicit StoreMessageReader(std::size_t max_body) : max_body_(max_body) {}

  void set_max_body(std::size_t max_body) { max_body_ = max_body; }
  void feed(std::string_view bytes) { pending_.append(bytes); }
  // nullopt: more bytes are needed. Throws Error(kInput) for bytes that are no message; the stream
  // is of no use then.
  [[nodiscard]] std::optional<StoreMessage> next();

 private:
  std::size_t max_body_ = 0;
  std::string pending_;
};

}  // namespace moe::comm
