#pragma once

// Opens any routing input that the toolkit knows, whatever wrote it. The format is detected from
// the content, not from the name. Nothing in a file is executed; pickles go through a reader that
// refuses anything but tensors, numbers, texts, lists and dictionaries.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/routing/expert_counts.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

// How to read an array whose file does not say what it holds.
enum class ArrayLayout : std::uint8_t { kAuto, kTokenIds, kTopOne, kCounts, kLogits };

// What the user knows and the file does not say; unset: from the file, or inferred with a finding.
struct OpenOptions {
  std::optional<std::int32_t> num_experts;
  std::optional<std::int32_t> top_k;  // router logits need it
  std::int32_t num_shared_experts = 0;
  // Model layer number of the first layer of an array without layer numbers.
  std::int32_t first_layer = 0;
  ArrayLayout layout = ArrayLayout::kAuto;
  // Tokens a block holds at most.
  std::int64_t block_tokens = 1024;
  // Rows of the engine's own warm-up are left out (counted as an observation).
  bool skip_profiling = false;
};

// Several files are the ranks (or layers) of one run. A directory stands for the dump files in it.
// "counts.json#olmoe/arxiv" names one of several sets in a file. Throws Error(kInput) with file and
// place, and the list of known formats when none fits.
[[nodiscard]] RoutingInput open_input(std::span<const std::string> paths,
                                      const OpenOptions& options = {});
[[nodiscard]] RoutingInput open_input(const std::string& path, const OpenOptions& options = {});

}  // namespace moe::routing
