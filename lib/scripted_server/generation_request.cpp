#include "lib/scripted_server/generation_request.hpp"

#include <simdjson.h>

namespace moe::scripted_server {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::int64_t kMaxTokens = 1 << 20;
constexpr std::int64_t kMaxChatTokens = 4096;  // when a chat request does not say
constexpr std::size_t kMaxDepth = 64;

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool is_inside = false;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!is_blank && !is_inside) ++words;
    is_inside = !is_blank;
  }
  return words;
}

// A text, or an array of token ids.
bool count_prompt(const element& prompt, std::int64_t& tokens) {
  std::string_view text;
  simdjson::dom::array items;
  if (prompt.get(text) == simdjson::SUCCESS) {
    tokens = count_words(text);
    return true;
  }
  if (prompt.get(items) != simdjson::SUCCESS) return false;
  tokens = 0;
  for (const element item : items) {
    if (!item.is_int64() && !item.is_uint64()) return false;
    ++tokens;
  }
  return true;
}

// The words of every text in the messages; parts of a message that are no text count nothing.
bool count_messages(const element& messages, std::int64_t& tokens) {
  simdjson::dom::array items;
  if (messages.get(items) != simdjson::SUCCESS || items.size() == 0) return false;
  tokens = 0;
  for (const element message : items) {
    if (!message.is_object()) return false;
    element content;
    if (message["content"].get(content) != simdjson::SUCCESS) continue;
    std::string_view text;
    simdjson::dom::array parts;
    if (content.get(text) == simdjson::SUCCESS) {
      tokens += count_words(text);
    } else if (content.get(parts) == simdjson::SUCCESS) {
      for (const element part : parts) {
        if (part["text"].get(text) == simdjson::SUCCESS) tokens += count_words(text);
      }
    }
  }
  return true;
}

// Absent and null leave the default.
bool read_bool(const object& from, std::string_view key, bool& target) {
  element value;
  if (from[key].get(value) != simdjson::SUCCESS || value.is_null()) return true;
  return value.get(target) == simdjson::SUCCESS;
}

std::string read_max_tokens(const object& root, GenerationRequest& request) {
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    element value;
    if (root[key].get(value) != simdjson::SUCCESS || value.is_null()) continue;
    std::int64_t tokens = 0;
    if (value.get(tokens) != simdjson::SUCCESS || tokens < 1 || tokens > kMaxTokens) {
      return std::string(key) + " must be a whole number of 1 or more";
    }
    request.max_tokens = tokens;
  }
  return {};
}

std::string read_flags(const object& root, GenerationRequest& request) {
  if (!read_bool(root, "stream", request.stream)) return "stream must be true or false";
  if (!read_bool(root, "return_token_ids", request.return_token_ids)) {
    return "return_token_ids must be true or false";
  }
  if (!read_bool(root, "timings_per_token", request.timings_per_token)) {
    return "timings_per_token must be true or false";
  }
  element n;
  std::int64_t choices = 1;
  if (root["n"].get(n) == simdjson::SUCCESS && !n.is_null() &&
      (n.get(choices) != simdjson::SUCCESS || choices != 1)) {
    return "one choice a request is scripted: n must be 1";
  }
  element options;
  if (root["stream_options"].get(options) != simdjson::SUCCESS || options.is_null()) return {};
  object fields;
  if (options.get(fields) != simdjson::SUCCESS) return "stream_options must be an object";
  if (!request.stream) return "stream_options need \"stream\": true";
  if (!read_bool(fields, "include_usage", request.include_usage) ||
      !read_bool(fields, "continuous_usage_stats", request.continuous_usage)) {
    return "stream_options hold true or false";
  }
  return {};
}

}  // namespace

struct GenerationRequestReader::Parser {
  simdjson::dom::parser parser;
};

GenerationRequestReader::GenerationRequestReader() : parser_(std::make_unique<Parser>()) {}
GenerationRequestReader::~GenerationRequestReader() = default;

std::string GenerationRequestReader::read(std::string_view body, bool is_chat,
                                          GenerationRequest& request) {
  request = GenerationRequest{};
  request.is_chat = is_chat;
  if (is_chat) request.max_tokens = kMaxChatTokens;
  simdjson::dom::parser& parser = parser_->parser;
  if (parser.max_depth() != kMaxDepth && parser.allocate(body.size() + 1, kMaxDepth) != 0) {
    return "the request is too large";
  }
  object root;
  // The parser copies the text: it reads a little past its end.
  const simdjson::error_code error = parser.parse(body.data(), body.size(), true).get(root);
  if (error != simdjson::SUCCESS) {
    return std::string("the body is not a JSON object: ") + simdjson::error_message(error);
  }
  std::string_view model;
  if (root["model"].get(model) == simdjson::SUCCESS) request.model = model;
  element prompt;
  const char* key = is_chat ? "messages" : "prompt";
  const bool is_prompt = root[key].get(prompt) == simdjson::SUCCESS &&
                         (is_chat ? count_messages(prompt, request.prompt_tokens)
                                  : count_prompt(prompt, request.prompt_tokens));
  if (!is_prompt) {
    return is_chat ? "messages must be an array of messages, not empty"
                   : "prompt must be a text or an array of token ids";
  }
  const std::string wrong = read_max_tokens(root, request);
  return wrong.empty() ? read_flags(root, request) : wrong;
}

}  // namespace moe::scripted_server
