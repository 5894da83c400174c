#pragma once

// The token ids that a benchmark feeds. Real text or uniformly random ids: a prompt of one repeated
// token, or the same prompt in every request, sends all tokens to the same few experts and measures
// a model that nobody serves.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/tokenizer.hpp"

namespace moe::app {

enum class PromptKind : std::uint8_t {
  kText,    // consecutive pieces of a text
  kRandom,  // uniform over the vocabulary
  kRepeat,  // one prompt for all requests of a batch
};

// Makes the prompts of any request, the same ones for the same seed.
class PromptSource {
 public:
  // `text_tokens` may be empty for kRandom; kRepeat repeats text when there is some, else random
  // ids.
  PromptSource(PromptKind kind, std::vector<std::int32_t> text_tokens, std::int32_t vocab_size,
               std::uint64_t seed, std::string description);

  // `num_tokens` ids for request `request_idx`.
  [[nodiscard]] std::vector<std::int32_t> prompt(std::int64_t request_idx,
                                                 std::int64_t num_tokens) const;
  [[nodiscard]] PromptKind kind() const { return kind_; }
  // For the report: "text of english.txt (21,676 tokens), a different piece for each request".
  [[nodiscard]] const std::string& description() const { return description_; }
  // True when `num_requests` prompts of `num_tokens` ids overlap or wrap around the text.
  [[nodiscard]] bool repeats_text(std::int64_t num_requests, std::int64_t num_tokens) const;

 private:
  PromptKind kind_;
  std::vector<std::int32_t> text_tokens_;
  std::int32_t vocab_size_;
  std::uint64_t seed_;
  std::string description_;
};

struct PromptOptions {
  std::string prompts = "auto";  // auto, random, repeat, or a text file
  std::uint64_t seed = 0;
  std::int32_t vocab_size = 0;
  std::filesystem::path scenarios;  // for the text of auto; may be empty
};

// `tokenizer` may be absent: auto then means random, and a text file is refused. Throws
// Error(kInput) for a file that cannot be read or holds no text, Error(kUsage) for a text without a
// tokenizer.
[[nodiscard]] PromptSource make_prompts(const PromptOptions& options,
                                        const std::optional<model::Tokenizer>& tokenizer);

}  // namespace moe::app
