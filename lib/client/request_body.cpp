#include "lib/client/request_body.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace moe::client {
namespace {

std::string json_text(std::string_view text) {
  return nlohmann::ordered_json(text).dump(-1, ' ', false,
                                           nlohmann::ordered_json::error_handler_t::replace);
}

// What follows the prompt or the messages, with the closing brace.
std::string rest_of(const BodyOptions& options, std::int64_t max_tokens) {
  std::string rest;
  // max_tokens is what all servers read; chat's newer name is not known to all of them.
  if (max_tokens > 0) rest += fmt::format(",\"max_tokens\":{}", max_tokens);
  rest += fmt::format(",\"temperature\":{}", options.temperature);
  if (options.ignores_eos) rest += ",\"ignore_eos\":true";
  if (options.wants_token_ids) rest += ",\"return_token_ids\":true";
  if (options.is_stream) {
    rest += ",\"stream\":true";
    if (options.wants_usage) {
      rest += fmt::format(",\"stream_options\":{{\"include_usage\":true{}}}",
                          options.wants_continuous_usage ? ",\"continuous_usage_stats\":true" : "");
    }
  }
  if (!options.extra.empty()) rest += "," + options.extra;
  return rest + "}";
}

}  // namespace

const char* name_of(Api api) {
  return api == Api::kChat ? "chat" : "completions";
}

const char* path_of(Api api) {
  return api == Api::kChat ? "/v1/chat/completions" : "/v1/completions";
}

const std::array<OptionalField, 4>& optional_fields() {
  static constexpr std::array<OptionalField, 4> kFields = {{
      {"return_token_ids", &BodyOptions::wants_token_ids},
      {"stream_options.continuous_usage_stats", &BodyOptions::wants_continuous_usage},
      {"stream_options.include_usage", &BodyOptions::wants_usage},
      {"ignore_eos", &BodyOptions::ignores_eos},
  }};
  return kFields;
}

std::string text_body(const BodyOptions& options, std::string_view prompt,
                      std::int64_t max_tokens) {
  return fmt::format("{{\"model\":{},\"prompt\":{}", json_text(options.model), json_text(prompt)) +
         rest_of(options, max_tokens);
}

std::string ids_body(const BodyOptions& options, std::span<const std::int32_t> prompt,
                     std::int64_t max_tokens) {
  return fmt::format("{{\"model\":{},\"prompt\":[{}]", json_text(options.model),
                     fmt::join(prompt.begin(), prompt.end(), ",")) +
         rest_of(options, max_tokens);
}

std::string chat_body(const BodyOptions& options, const std::vector<ChatMessage>& messages,
                      std::int64_t max_tokens) {
  std::string list;
  for (const ChatMessage& message : messages) {
    list += fmt::format("{}{{\"role\":{},\"content\":{}}}", list.empty() ? "" : ",",
                        json_text(message.role), json_text(message.content));
  }
  return fmt::format("{{\"model\":{},\"messages\":[{}]", json_text(options.model), list) +
         rest_of(options, max_tokens);
}

}  // namespace moe::client
