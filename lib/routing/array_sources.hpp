#pragma once

// Sources over arrays in mapped files: what an id array, a torch dump and TensorRT-LLM's statistics
// have in common. A reader says how a file falls into parts; the sources walk over them.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lib/base/file_map.hpp"
#include "lib/routing/array_view.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

// Keeps the pages of a mapped file that were read from piling up in memory.
class PageReleaser {
 public:
  explicit PageReleaser(const FileMap* map) : map_(map) {}
  // Everything before this address has been used.
  void used_up_to(const std::byte* address);

 private:
  const FileMap* map_;
  std::size_t released_ = 0;
  bool has_begun_ = false;
};

// A run of tokens whose ids (or router scores) lie in one array per layer.
struct TokenSegment {
  std::int64_t step = 0;
  std::int64_t num_tokens = 0;
  Phase phase = Phase::kPrefill;
  // One view [tokens, k] per layer of the info; a view without axes: the layer is not recorded.
  std::vector<ArrayView> rows;
  // Tokens of each sequence, in order; empty: the segment continues one long sequence.
  std::vector<std::int64_t> sequence_tokens;
};

struct SegmentPlan {
  std::int64_t num_segments = 0;
  std::function<void(std::int64_t segment_idx, TokenSegment& segment)> fill;
  std::vector<std::shared_ptr<const FileMap>> maps;  // kept alive; pages of the first are released
  std::int64_t num_tokens = -1;                      // of all segments, where known
  // True: rows hold router scores [tokens, num_experts]; the top_k best are the ids, the softmax
  // over all scores gives the weights.
  bool is_scores = false;
};

// Copies ids of tokens [begin, begin + n) of a [tokens, k] view; wide integers that do not fit stay
// out of every range.
void read_id_rows(const ArrayView& rows, std::int64_t begin, std::int64_t num_tokens,
                  std::int64_t out_stride, std::int32_t* out);

[[nodiscard]] std::unique_ptr<TokenSource> make_segment_source(const InputInfo& info,
                                                               SegmentPlan plan,
                                                               std::int64_t block_tokens);

// One recorded row of counts is a sum of parts: ranks, records of one pass.
struct CountPart {
  std::int64_t layer_idx = 0;
  ArrayView values;  // [experts], or [slots] when the info has a placement
};

struct CountPlan {
  std::int64_t num_steps = 0;
  // Step number and parts of a recorded row.
  std::function<std::int64_t(std::int64_t step_idx, std::vector<CountPart>& parts)> fill;
  std::vector<std::shared_ptr<const FileMap>> maps;
};

// Negative values are counted as counts.negative and left out; fractions are rounded and counted.
[[nodiscard]] std::unique_ptr<CountSource> make_count_source(const InputInfo& info, CountPlan plan);

// Counts that are in memory already.
[[nodiscard]] std::unique_ptr<CountSource> make_memory_count_source(std::vector<CountStep> steps);

}  // namespace moe::routing
