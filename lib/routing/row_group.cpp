#include "lib/routing/row_group.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::routing {

bool RowGroup::is_next_group(const Row& row) const {
  if (rows_.empty()) return false;
  const Row& last = rows_.back();
  if (row.step != last.step || row.layer_idx < last.layer_idx) return true;
  // With one layer no other row can belong to the tokens at hand.
  return info_.num_layers() == 1 && num_rows() >= 4096;
}

void RowGroup::add(const Row& row, const std::int32_t* ids, const float* weights) {
  if (num_rows() == kMaxRows) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: more than {} rows until the first layer comes again; rows must "
                            "stand step by step or token by token, not layer by layer",
                            info_.name, kMaxRows));
  }
  const auto top_k = static_cast<std::size_t>(info_.top_k);
  rows_.push_back(row);
  ids_.insert(ids_.end(), ids, ids + top_k);
  if (!info_.has_weights) return;
  if (weights != nullptr) {
    weights_.insert(weights_.end(), weights, weights + top_k);
  } else {
    weights_.resize(weights_.size() + top_k, 0.0F);
  }
}

void RowGroup::arrange() {
  runs_.clear();
  for (std::size_t begin = 0; begin < rows_.size();) {
    std::size_t end = begin + 1;
    while (end < rows_.size() && rows_[end].layer_idx == rows_[begin].layer_idx) ++end;
    runs_.push_back({begin, end});
    begin = end;
  }
  reference_ = Run{};
  for (const Run& run : runs_) {
    if (run.end - run.begin > reference_.end - reference_.begin) reference_ = run;
  }
  row_of_.clear();
  for (const Run& run : runs_) match(run);
  next_token_ = 0;
}

void RowGroup::match(const Run& run) {
  const std::size_t num_tokens = reference_.end - reference_.begin;
  const std::size_t offset = row_of_.size();
  row_of_.resize(offset + num_tokens, -1);
  const auto same = [&](std::size_t a, std::size_t b) {
    return rows_[a].request == rows_[b].request && rows_[a].token == rows_[b].token;
  };
  bool is_aligned = run.end - run.begin == num_tokens;
  for (std::size_t i = 0; is_aligned && i < num_tokens; ++i) {
    is_aligned = same(run.begin + i, reference_.begin + i);
  }
  if (is_aligned) {
    for (std::size_t i = 0; i < num_tokens; ++i) {
      row_of_[offset + i] = static_cast<std::int64_t>(run.begin + i);
    }
    return;
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> place;
  for (std::size_t i = 0; i < num_tokens; ++i) {
    const Row& row = rows_[reference_.begin + i];
    place[{row.request, row.token}] = i;
  }
  for (std::size_t r = run.begin; r < run.end; ++r) {
    const auto found = place.find({rows_[r].request, rows_[r].token});
    if (found == place.end()) {
      ++num_unmatched_;
    } else {
      row_of_[offset + found->second] = static_cast<std::int64_t>(r);
    }
  }
}

bool RowGroup::take(TokenBlock& block, std::int64_t block_tokens) {
  const auto num_tokens = static_cast<std::int64_t>(reference_.end - reference_.begin);
  if (next_token_ == num_tokens) return false;
  const std::int64_t count = std::min(block_tokens, num_tokens - next_token_);
  block.resize(count, info_);
  const std::int64_t top_k = info_.top_k;
  for (std::int64_t t = 0; t < count; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const Row& row = rows_[reference_.begin + static_cast<std::size_t>(next_token_ + t)];
    block.step[i] = row.step;
    block.request[i] = row.request;
    block.token[i] = row.token;
    block.phase[i] = row.phase;
    if (info_.has_time) block.time_s[i] = row.time_s;
  }
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const std::int64_t layer = rows_[runs_[run].begin].layer_idx;
    const std::int64_t* rows =
        row_of_.data() + static_cast<std::int64_t>(run) * num_tokens + next_token_;
    for (std::int64_t t = 0; t < count; ++t) {
      if (rows[t] < 0) continue;
      const std::int64_t to = (t * block.num_layers + layer) * top_k;
      std::copy_n(ids_.data() + rows[t] * top_k, top_k, block.ids.data() + to);
      if (info_.has_weights) {
        std::copy_n(weights_.data() + rows[t] * top_k, top_k, block.weights.data() + to);
      }
    }
  }
  next_token_ += count;
  return true;
}

void RowGroup::clear() {
  rows_.clear();
  ids_.clear();
  weights_.clear();
  runs_.clear();
  row_of_.clear();
  reference_ = Run{};
  next_token_ = 0;
}

}  // namespace moe::routing
