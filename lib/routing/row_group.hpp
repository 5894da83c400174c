#pragma once

// From rows of one token in one layer, in whatever order an engine wrote them, to tokens with all
// their layers.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

// Rows of one forward pass, or as many as belong together. Layers ascend; within a layer tokens
// keep their order.
class RowGroup {
 public:
  // Rows that a group may hold: memory is bounded by a step, not by the trace.
  static constexpr std::int64_t kMaxRows = std::int64_t{1} << 22;

  struct Row {
    std::int64_t step = 0;
    std::int64_t layer_idx = 0;
    std::int64_t request = 0;
    std::int64_t token = 0;
    Phase phase = Phase::kPrefill;
    double time_s = 0.0;
  };

  // `info` must outlive the group.
  explicit RowGroup(const InputInfo& info) : info_(info) {}

  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // True when the row begins another group: another step, or a smaller layer.
  [[nodiscard]] bool is_next_group(const Row& row) const;
  // `ids` and `weights` hold top_k values; weights may be null. Throws Error(kInput) when the group
  // would pass kMaxRows.
  void add(const Row& row, const std::int32_t* ids, const float* weights);

  // Gives tokens out, block by block: call arrange() once, then take() until it returns false,
  // then clear().
  void arrange();
  [[nodiscard]] bool take(TokenBlock& block, std::int64_t block_tokens);
  void clear();
  // The same in one: the next block, with fill() adding the rows of another group whenever the last
  // one is given out. False when it adds none.
  template <typename Fill>
  [[nodiscard]] bool next_block(TokenBlock& block, std::int64_t block_tokens, const Fill& fill) {
    while (!take(block, block_tokens)) {
      clear();
      fill();
      if (empty()) return false;
      arrange();
    }
    return true;
  }
  // Rows that found no place because their layer names a token that no other layer has.
  [[nodiscard]] std::int64_t num_unmatched() const { return num_unmatched_; }

 private:
  struct Run {  // rows of one layer
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  void match(const Run& run);

  const InputInfo& info_;
  std::vector<Row> rows_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::vector<Run> runs_;
  Run reference_;
  // Row of each reference token in each run, [runs, tokens]; -1: the layer has no such token.
  std::vector<std::int64_t> row_of_;
  std::int64_t next_token_ = 0;
  std::int64_t num_unmatched_ = 0;
};

}  // namespace moe::routing
