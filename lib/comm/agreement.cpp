#include "lib/comm/agreement.hpp"

#include <cstring>

#include <fmt/format.h>

namespace moe::comm {
namespace {

// Counts to send, then counts to receive.
std::string pack_counts(const Exchange& exchange) {
  std::string text((exchange.send_bytes.size() + exchange.recv_bytes.size()) * sizeof(std::int64_t),
                   '\0');
  const std::size_t half = exchange.send_bytes.size_bytes();
  std::memcpy(text.data(), exchange.send_bytes.data(), half);
  std::memcpy(text.data() + half, exchange.recv_bytes.data(), exchange.recv_bytes.size_bytes());
  return text;
}

std::int64_t count_at(const std::string& text, std::size_t index) {
  std::int64_t count = 0;
  if ((index + 1) * sizeof(count) > text.size()) return -1;
  std::memcpy(&count, text.data() + index * sizeof(count), sizeof(count));
  return count;
}

}  // namespace

std::vector<CountMismatch> find_mismatches(Communicator& communicator, const Exchange& exchange) {
  const std::vector<std::string> texts = communicator.exchange_texts(pack_counts(exchange));
  std::vector<CountMismatch> mismatches;
  if (!communicator.moves_data()) return mismatches;
  const std::size_t ranks = texts.size();
  for (std::size_t s = 0; s < ranks; ++s) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::int64_t sent = count_at(texts[s], r);
      const std::int64_t expected = count_at(texts[r], ranks + s);
      if (sent == expected) continue;
      mismatches.push_back({static_cast<int>(s), static_cast<int>(r), sent, expected});
    }
  }
  return mismatches;
}

void require_agreement(Communicator& communicator, const Exchange& exchange) {
  const std::vector<CountMismatch> mismatches = find_mismatches(communicator, exchange);
  if (mismatches.empty()) return;
  const CountMismatch& first = mismatches.front();
  throw Error(ErrorCode::kUsage,
              fmt::format("rank {} would send {} bytes to rank {}, which expects {} ({} pairs "
                          "differ); start every rank with the same options and the same build",
                          first.sender, first.sent_bytes, first.receiver, first.expected_bytes,
                          mismatches.size()));
}

}  // namespace moe::comm
