#pragma once

// What a pre-tokenizer does with the matches of its pattern.

#include <vector>

#include "lib/model/tokenizer_pattern.hpp"

namespace moe::model::tokenizer_detail {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// The value of field "behavior".
[[nodiscard]] SplitBehavior parse_split_behavior(const JsonFields& fields);

// Turns ranges that cover a text into the ranges to keep (is_match then means nothing). "the-end"
// cut at "-": Removed the|end, Isolated the|-|end, MergedWithPrevious the-|end, MergedWithNext
// the|-end; Contiguous as Isolated, but neighbouring matches stay together.
void apply_split_behavior(SplitBehavior behavior, std::vector<PatternRange>& ranges);

}  // namespace moe::model::tokenizer_detail
