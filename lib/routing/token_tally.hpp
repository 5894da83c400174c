#pragma once

// Adds token rows up to counts, the innermost loop of every metric.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

class TokenTally {
 public:
  explicit TokenTally(const InputInfo& info);

  // Tokens [begin, end) of a block. Ids are in [0, num_experts) or kUnusedSlot.
  void add(const TokenBlock& block, std::int64_t begin, std::int64_t end);
  // Counts to zero; the figures below go on.
  void clear();

  [[nodiscard]] std::span<const std::int64_t> counts() const { return counts_; }  // [layers, E]
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  // Experts that a token names more than once in one layer, second and later times.
  [[nodiscard]] std::int64_t num_duplicates() const { return num_duplicates_; }

 private:
  std::int64_t num_experts_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int32_t> last_row_;  // [layers, E]: the token that named the expert last
  std::int64_t num_tokens_ = 0;
  std::int64_t num_duplicates_ = 0;
  std::int32_t row_ = 0;
};

}  // namespace moe::routing
