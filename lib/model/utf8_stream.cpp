#include "lib/model/utf8_stream.hpp"

#include <algorithm>
#include <cstdint>

namespace moe::model {
namespace {

// What a lead byte asks for (Unicode 15, table 3-7): number of bytes, and the range of the second.
struct Lead {
  std::size_t length = 0;  // 0: no character begins with this byte
  std::uint8_t second_low = 0x80;
  std::uint8_t second_high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // nothing above U+10FFFF
  return {0};
}

std::size_t ascii_run(std::string_view text) {
  const auto* const end = std::find_if(text.data(), text.data() + text.size(),
                                       [](char c) { return static_cast<std::uint8_t>(c) >= 0x80; });
  return static_cast<std::size_t>(end - text.data());
}

}  // namespace

Utf8Prefix utf8_prefix(std::string_view text) {
  const Lead lead = lead_of(static_cast<std::uint8_t>(text[0]));
  if (lead.length == 0) return {1, false, false};
  if (lead.length == 1) return {1, true, false};
  std::size_t have = 1;
  for (; have < lead.length && have < text.size(); ++have) {
    const auto byte = static_cast<std::uint8_t>(text[have]);
    const std::uint8_t low = have == 1 ? lead.second_low : std::uint8_t{0x80};
    const std::uint8_t high = have == 1 ? lead.second_high : std::uint8_t{0xBF};
    if (byte < low || byte > high) return {have, false, false};
  }
  return {have, have == lead.length, have < lead.length};
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // A waiting tail is completed byte by byte: it holds at most 3 bytes.
  while (pending_count_ > 0 && !bytes.empty()) {
    pending_[pending_count_++] = bytes.front();
    bytes.remove_prefix(1);
    const Utf8Prefix prefix = utf8_prefix(pending());
    if (prefix.may_continue) continue;
    if (prefix.complete) {
      out.append(pending());
      pending_count_ = 0;
      break;
    }
    // The byte just added did not fit: the subpart before it is decided, the byte starts anew.
    out.append(kReplacementCharacter);
    const char last = pending_[pending_count_ - 1];
    pending_count_ = 0;
    const Utf8Prefix again = utf8_prefix({&last, 1});
    if (again.complete) {
      out.push_back(last);
    } else if (again.may_continue) {
      pending_[pending_count_++] = last;
    } else {
      out.append(kReplacementCharacter);
    }
  }
  while (!bytes.empty()) {
    const std::size_t ascii = ascii_run(bytes);
    out.append(bytes.substr(0, ascii));
    bytes.remove_prefix(ascii);
    if (bytes.empty()) return;
    const Utf8Prefix prefix = utf8_prefix(bytes);
    if (prefix.complete) {
      out.append(bytes.substr(0, prefix.length));
    } else if (prefix.may_continue) {
      std::copy(bytes.begin(), bytes.end(), pending_);
      pending_count_ = bytes.size();
    } else {
      out.append(kReplacementCharacter);
    }
    bytes.remove_prefix(prefix.length);
  }
}

void Utf8Stream::flush(std::string& out) {
  if (pending_count_ > 0) out.append(kReplacementCharacter);
  pending_count_ = 0;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.flush(out);
  return out;
}

}  // namespace moe::model
