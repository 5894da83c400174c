#include "lib/engine/batch.hpp"

#include <algorithm>

namespace moe::engine {

void Pass::reserve(std::int64_t max_rows, std::int64_t max_runs) {
  const auto rows = static_cast<std::size_t>(max_rows);
  tokens.reserve(rows);
  sequences.reserve(rows);
  positions.reserve(rows);
  head_rows.reserve(rows);
  runs.reserve(static_cast<std::size_t>(std::min(max_rows, max_runs)));
}

void Pass::clear() {
  tokens.clear();
  sequences.clear();
  positions.clear();
  runs.clear();
  head_rows.clear();
}

bool PassCursor::next(Pass& pass) {
  pass.clear();
  while (segment_idx_ < segments_.size() && pass.num_rows() < max_rows_) {
    const Segment& segment = segments_[segment_idx_];
    const auto num_tokens = static_cast<std::int64_t>(segment.tokens.size());
    const std::int64_t count = std::min(num_tokens - token_idx_, max_rows_ - pass.num_rows());
    pass.runs.push_back({segment.sequence, pass.num_rows(), count,
                         segment.first_position + token_idx_, segment.rope_mode});
    for (std::int64_t i = token_idx_; i < token_idx_ + count; ++i) {
      const bool is_last = i == num_tokens - 1;
      if (segment.logits == Segment::Logits::kAll ||
          (segment.logits == Segment::Logits::kLast && is_last)) {
        pass.head_rows.push_back(static_cast<std::int32_t>(pass.num_rows()));
      }
      pass.tokens.push_back(segment.tokens[static_cast<std::size_t>(i)]);
      pass.sequences.push_back(segment.sequence);
      pass.positions.push_back(segment.first_position + i);
    }
    token_idx_ += count;
    if (token_idx_ == num_tokens) {
      ++segment_idx_;
      token_idx_ = 0;
    }
  }
  return pass.num_rows() > 0;
}

}  // namespace moe::engine
