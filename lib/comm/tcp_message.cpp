#include "lib/comm/tcp_message.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/base/text.hpp"

namespace moe::comm {
namespace {

constexpr std::string_view kMagic = "MOES";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kSummedBytes = 20;
constexpr std::size_t kHeaderBytes = 28;

template <typename Integer>
void append(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
  }
}

template <typename Integer>
Integer read(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  }
  return static_cast<Integer>(value);
}

std::uint64_t checksum(std::string_view header, std::string_view body) {
  Fnv1a64 hash;
  hash.add(header.substr(0, kSummedBytes));
  hash.add(body);
  return hash.value();
}

[[noreturn]] void refuse_message(const std::string& what) {
  throw Error(ErrorCode::kInput, "not a message of moe-a2a: " + what);
}

}  // namespace

std::string encode_message(const StoreMessage& message) {
  MOE_CHECK(message.body.size() <= kMaxStoreBytes);
  std::string out(kMagic);
  append(out, kVersion);
  append(out, static_cast<std::uint16_t>(message.kind));
  append(out, message.rank);
  append(out, message.sequence);
  append(out, static_cast<std::uint32_t>(message.body.size()));
  append(out, checksum(out, message.body));
  return out + message.body;
}

std::string encode_texts(const std::vector<std::string>& texts) {
  std::string body;
  append(body, static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    MOE_CHECK(text.size() <= kMaxStoreBytes);
    append(body, static_cast<std::uint32_t>(text.size()));
    body += text;
  }
  return body;
}

std::vector<std::string> decode_texts(std::string_view body) {
  constexpr std::size_t kLength = sizeof(std::uint32_t);
  if (body.size() < kLength) refuse_message("a body that is too short for a list of texts");
  const std::uint32_t count = read<std::uint32_t>(body, 0);
  body.remove_prefix(kLength);
  // Every text takes its length at least: no memory for a count that cannot be.
  if (count > body.size() / kLength)
    refuse_message(fmt::format("a list of {} texts that ends early", count));
  std::vector<std::string> texts;
  texts.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (body.size() < kLength) refuse_message("a list of texts that ends early");
    const std::uint32_t length = read<std::uint32_t>(body, 0);
    body.remove_prefix(kLength);
    if (length > body.size()) refuse_message("a text that ends early");
    texts.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  if (!body.empty()) refuse_message("bytes after the last text");
  return texts;
}

std::optional<StoreMessage> StoreMessageReader::next() {
  const std::string_view bytes = pending_;
  // A stranger is recognised by its first bytes, not kept waiting for the rest of a header.
  const std::size_t known = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, known) != kMagic.substr(0, known)) {
    refuse_message(fmt::format("it begins with \"{}\"", printable(bytes.substr(0, 16))));
  }
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const std::uint16_t version = read<std::uint16_t>(bytes, 4);
  const std::uint16_t kind = read<std::uint16_t>(bytes, 6);
  const std::size_t length = read<std::uint32_t>(bytes, 16);
  if (version != kVersion) refuse_message(fmt::format("version {}, this is {}", version, kVersion));
  if (kind < 1 || kind > static_cast<std::uint16_t>(StoreMessageKind::kFailure)) {
    refuse_message(fmt::format("kind {}", kind));
  }
  if (length > max_body_)
    refuse_message(fmt::format("{} bytes, at most {} are taken", length, max_body_));
  if (bytes.size() - kHeaderBytes < length) return std::nullopt;
  StoreMessage message;
  message.kind = static_cast<StoreMessageKind>(kind);
  message.rank = read<std::uint32_t>(bytes, 8);
  message.sequence = read<std::uint32_t>(bytes, 12);
  message.body = std::string(bytes.substr(kHeaderBytes, length));
  if (read<std::uint64_t>(bytes, kSummedBytes) != checksum(bytes, message.body)) {
    refuse_message("its checksum is wrong");
  }
  pending_.erase(0, kHeaderBytes + length);
  return message;
}

}  // namespace moe::comm
