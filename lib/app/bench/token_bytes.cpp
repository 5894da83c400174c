#include "lib/app/bench/token_bytes.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace moe::app {
namespace {

std::int32_t num_characters(std::string_view utf8) {
  return static_cast<std::int32_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

}  // namespace

std::vector<std::int32_t> token_byte_lengths(const model::Tokenizer& tokenizer,
                                             std::span<const std::int32_t> ids,
                                             std::string_view text) {
  std::vector<std::int32_t> lengths;
  lengths.reserve(ids.size());
  // A byte-level token is written with one character a byte.
  for (const std::int32_t id : ids) {
    lengths.push_back(num_characters(tokenizer.id_to_token(id).value_or("")));
  }
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (total == static_cast<std::int64_t>(text.size())) return lengths;
  model::TokenStream stream(tokenizer, false);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    lengths[i] = static_cast<std::int32_t>(stream.push(ids[i]).size());
  }
  if (!lengths.empty()) lengths.back() += static_cast<std::int32_t>(stream.flush().size());
  return lengths;
}

}  // namespace moe::app
