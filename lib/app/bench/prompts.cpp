#include "lib/app/bench/prompts.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lib/app/bench/checkpoint.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/rng.hpp"

namespace moe::app {
namespace {

// More text than any sweep needs; a larger file is read to here.
constexpr std::size_t kMaxPromptFileBytes = std::size_t{8} << 20;
constexpr const char* kDefaultText = "checkpoints/eval-text/english.txt";

// The first bytes of the file, cut before a character that would be torn.
std::vector<std::int32_t> tokens_of_file(const std::filesystem::path& file,
                                         const model::Tokenizer& tokenizer) {
  const FileMap map(file);
  const std::span<const std::byte> bytes = map.bytes();
  std::size_t length = std::min(bytes.size(), kMaxPromptFileBytes);
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  const auto is_continuation = [&](std::size_t at) {
    return (static_cast<unsigned char>(data[at]) & 0xc0U) == 0x80U;
  };
  while (length > 0 && length < bytes.size() && is_continuation(length)) --length;
  std::vector<std::int32_t> tokens;
  if (length > 0) tokens = encode_file_text(tokenizer, std::string_view(data, length), file);
  if (tokens.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected text, found none", file.string()));
  }
  return tokens;
}

std::string describe_text(const std::filesystem::path& file, std::size_t num_tokens) {
  return fmt::format("text of {} ({} tokens), another piece for each request",
                     file.filename().string(), num_tokens);
}

}  // namespace

PromptSource::PromptSource(PromptKind kind, std::vector<std::int32_t> text_tokens,
                           std::int32_t vocab_size, std::uint64_t seed, std::string description)
    : kind_(kind),
      text_tokens_(std::move(text_tokens)),
      vocab_size_(vocab_size),
      seed_(seed),
      description_(std::move(description)) {
  MOE_CHECK(vocab_size_ > 0);
  MOE_CHECK(kind_ != PromptKind::kText || !text_tokens_.empty());
}

std::vector<std::int32_t> PromptSource::prompt(std::int64_t request_idx,
                                               std::int64_t num_tokens) const {
  if (kind_ == PromptKind::kRepeat) request_idx = 0;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_tokens));
  if (text_tokens_.empty()) {
    Rng rng(seed_, static_cast<std::uint64_t>(request_idx));
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(vocab_size_)));
    }
    return ids;
  }
  const std::size_t size = text_tokens_.size();
  std::size_t at = static_cast<std::size_t>(request_idx * num_tokens) % size;
  for (std::int32_t& id : ids) {
    id = text_tokens_[at];
    at = at + 1 == size ? 0 : at + 1;
  }
  return ids;
}

bool PromptSource::repeats_text(std::int64_t num_requests, std::int64_t num_tokens) const {
  if (text_tokens_.empty() || kind_ == PromptKind::kRepeat) return false;
  return num_requests * num_tokens > static_cast<std::int64_t>(text_tokens_.size());
}

PromptSource make_prompts(const PromptOptions& options,
                          const std::optional<model::Tokenizer>& tokenizer) {
  const auto random = [&](PromptKind kind, const std::string& description) {
    return PromptSource(kind, {}, options.vocab_size, options.seed, description);
  };
  const std::filesystem::path default_text =
      options.scenarios.empty() ? std::filesystem::path() : options.scenarios / kDefaultText;
  std::error_code ignored;
  const bool has_default =
      !default_text.empty() && tokenizer && std::filesystem::is_regular_file(default_text, ignored);
  if (options.prompts == "random") {
    return random(PromptKind::kRandom, "uniformly random token ids, others for each request");
  }
  if (options.prompts == "repeat") {
    if (!has_default) {
      return random(PromptKind::kRepeat,
                    "one prompt of random token ids, the same for every "
                    "request");
    }
    return {PromptKind::kRepeat, tokens_of_file(default_text, *tokenizer), options.vocab_size,
            options.seed, "one piece of text, the same for every request"};
  }
  if (options.prompts == "auto") {
    if (!tokenizer) {
      return random(PromptKind::kRandom,
                    "uniformly random token ids (the checkpoint has no tokenizer.json)");
    }
    if (!has_default) {
      return random(PromptKind::kRandom,
                    "uniformly random token ids (the default text was not found)");
    }
  }
  const std::filesystem::path file =
      options.prompts == "auto" ? default_text : std::filesystem::path(options.prompts);
  if (!tokenizer) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--prompts {}: text needs a tokenizer.json in the checkpoint; use "
                            "--prompts random",
                            options.prompts));
  }
  std::vector<std::int32_t> tokens = tokens_of_file(file, *tokenizer);
  const std::string description = describe_text(file, tokens.size());
  return {PromptKind::kText, std::move(tokens), options.vocab_size, options.seed, description};
}

}  // namespace moe::app
