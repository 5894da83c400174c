#pragma once

// Cuts the tokens of a forward() call into passes of bounded size.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/engine/engine.hpp"
#include "lib/engine/rope.hpp"

namespace moe::engine {

// Consecutive tokens of one sequence to be run, and which of them need logits.
struct Segment {
  SequenceId sequence = 0;
  std::int64_t first_position = 0;
  std::span<const std::int32_t> tokens;
  RopeMode rope_mode = RopeMode::kShort;
  enum class Logits : std::uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
};

// Rows of a pass that belong to one segment.
struct Run {
  SequenceId sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t first_position = 0;
  RopeMode rope_mode = RopeMode::kShort;
};

struct Pass {
  std::vector<std::int32_t> tokens;  // [rows]
  std::vector<SequenceId> sequences;
  std::vector<std::int64_t> positions;
  std::vector<Run> runs;
  std::vector<std::int32_t> head_rows;  // rows that need logits, ascending

  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(tokens.size()); }
  void reserve(std::int64_t max_rows, std::int64_t max_runs);
  void clear();
};

// Walks over segments pass by pass.
class PassCursor {
 public:
  PassCursor(std::span<const Segment> segments, std::int64_t max_rows)
      : segments_(segments), max_rows_(max_rows) {}

  // Fills the next pass; false when all segments are done.
  bool next(Pass& pass);

 private:
  std::span<const Segment> segments_;
  std::int64_t max_rows_;
  std::size_t segment_idx_ = 0;
  std::int64_t token_idx_ = 0;
};

}  // namespace moe::engine
