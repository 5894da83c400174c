#include "lib/routing/token_tally.hpp"

#include <algorithm>
#include <limits>

#include "lib/base/check.hpp"

namespace moe::routing {

TokenTally::TokenTally(const InputInfo& info)
    : num_experts_(info.num_experts),
      counts_(static_cast<std::size_t>(info.num_layers() * info.num_experts), 0),
      last_row_(counts_.size(), 0) {}

void TokenTally::add(const TokenBlock& block, std::int64_t begin, std::int64_t end) {
  MOE_DCHECK(block.num_layers * num_experts_ == static_cast<std::int64_t>(counts_.size()));
  const std::int64_t top_k = block.top_k;
  std::int64_t num_repeated = 0;
  for (std::int64_t token = begin; token < end; ++token) {
    if (row_ == std::numeric_limits<std::int32_t>::max()) {
      std::fill(last_row_.begin(), last_row_.end(), 0);
      row_ = 0;
    }
    ++row_;
    const std::int32_t* ids = block.ids_of(token, 0);
    std::int64_t* counts = counts_.data();
    std::int32_t* last_row = last_row_.data();
    for (std::int64_t layer = 0; layer < block.num_layers; ++layer) {
      for (std::int64_t k = 0; k < top_k; ++k) {
        const std::int32_t id = ids[k];
        if (id < 0) continue;
        ++counts[id];
        num_repeated += last_row[id] == row_ ? 1 : 0;
        last_row[id] = row_;
      }
      ids += top_k;
      counts += num_experts_;
      last_row += num_experts_;
    }
  }
  num_tokens_ += end - begin;
  num_duplicates_ += num_repeated;
}

void TokenTally::clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
}

}  // namespace moe::routing
