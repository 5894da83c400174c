#pragma once

// Bodies of completion and chat requests, and what may be asked of a server beyond the standard.
// Which of it a server takes is found by asking (lib/app/bench), never by its name.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::client {

enum class Api : std::uint8_t { kCompletions, kChat };
[[nodiscard]] const char* name_of(Api api);
// "/v1/completions", "/v1/chat/completions".
[[nodiscard]] const char* path_of(Api api);

struct BodyOptions {
  std::string model;
  bool is_stream = true;
  bool wants_usage = true;             // stream_options.include_usage
  bool wants_continuous_usage = true;  // stream_options.continuous_usage_stats
  bool wants_token_ids = true;         // return_token_ids
  bool ignores_eos = true;             // ignore_eos
  double temperature = 0.0;
  std::string extra;  // members of a JSON object, without its braces; may be empty
};

// What a server may refuse, in the order in which it is given up.
struct OptionalField {
  const char* name;
  bool BodyOptions::*wish;
};
[[nodiscard]] const std::array<OptionalField, 4>& optional_fields();

struct ChatMessage {
  std::string role;
  std::string content;
};

// `max_tokens` 0 leaves the limit to the server.
[[nodiscard]] std::string text_body(const BodyOptions& options, std::string_view prompt,
                                    std::int64_t max_tokens);
[[nodiscard]] std::string ids_body(const BodyOptions& options, std::span<const std::int32_t> prompt,
                                   std::int64_t max_tokens);
[[nodiscard]] std::string chat_body(const BodyOptions& options,
                                    const std::vector<ChatMessage>& messages,
                                    std::int64_t max_tokens);

}  // namespace moe::client
