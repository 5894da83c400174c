#include "lib/model/tokenizer_split.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace moe::model::tokenizer_detail {
namespace {

// A match joins the range before it, unless that is itself a match.
void merge_with_previous(std::vector<PatternRange>& ranges) {
  std::size_t kept = 0;
  bool previous_match = false;
  for (const PatternRange range : ranges) {
    if (range.is_match && !previous_match && kept > 0) {
      ranges[kept - 1].end = range.end;
    } else {
      ranges[kept++] = range;
    }
    previous_match = range.is_match;
  }
  ranges.resize(kept);
}

// The mirror image: a match joins the range after it.
void merge_with_next(std::vector<PatternRange>& ranges) {
  std::size_t kept = ranges.size();
  bool next_match = false;
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const PatternRange range = ranges[i];
    if (range.is_match && !next_match && kept < ranges.size()) {
      ranges[kept].begin = range.begin;
    } else {
      ranges[--kept] = range;
    }
    next_match = range.is_match;
  }
  ranges.erase(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(kept));
}

void merge_contiguous(std::vector<PatternRange>& ranges) {
  std::size_t kept = 0;
  bool previous_match = false;
  for (const PatternRange range : ranges) {
    if (range.is_match == previous_match && kept > 0) {
      ranges[kept - 1].end = range.end;
    } else {
      ranges[kept++] = range;
    }
    previous_match = range.is_match;
  }
  ranges.resize(kept);
}

}  // namespace

SplitBehavior parse_split_behavior(const JsonFields& fields) {
  const std::string name = fields.text("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  refuse(fields.where("behavior"),
         fmt::format("{} is not known (known: Removed, Isolated, MergedWithPrevious, "
                     "MergedWithNext, Contiguous)",
                     quote(name)));
}

void apply_split_behavior(SplitBehavior behavior, std::vector<PatternRange>& ranges) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(ranges, [](const PatternRange& range) { return range.is_match; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(ranges);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(ranges);
      break;
    case SplitBehavior::kContiguous:
      merge_contiguous(ranges);
      break;
  }
}

}  // namespace moe::model::tokenizer_detail
