#include "lib/scripted_server/event_text.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace moe::scripted_server {
namespace {

constexpr std::int64_t kFirstTokenId = 1000;
// Every run of a script gives the same bytes: a fixed moment for "created".
constexpr std::int64_t kCreated = 1700000000;

template <typename... Arguments>
void append(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
}

}  // namespace

std::string escape_json(std::string_view text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) return std::string(text);
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

EventWriter::EventWriter(const Script& script, const Reply& reply, const GenerationRequest& request)
    : script_(script), reply_(reply), request_(request), model_(escape_json(script.model)) {}

std::int64_t EventWriter::token_id(std::int64_t index) const {
  const std::vector<std::int32_t>& ids = reply_.tokens.ids;
  if (!ids.empty()) return ids[static_cast<std::size_t>(index) % ids.size()];
  const auto texts = static_cast<std::int64_t>(reply_.tokens.texts.size());
  return kFirstTokenId + index % texts;
}

std::string_view EventWriter::line_end() const {
  switch (reply_.framing.line_end) {
    case LineEnd::kLf:
      return "\n";
    case LineEnd::kCrLf:
      return "\r\n";
    case LineEnd::kCr:
      return "\r";
  }
  return "\n";
}

void EventWriter::begin(std::string& out) const {
  const char* object = request_.is_chat
                           ? (request_.stream ? "chat.completion.chunk" : "chat.completion")
                           : "text_completion";
  append(out, R"({{"id":"{}-scripted","object":"{}","created":{},"model":"{}")",
         request_.is_chat ? "chatcmpl" : "cmpl", object, kCreated, model_);
}

void EventWriter::write_opening(std::string& out) const {
  if (reply_.events.opening == Opening::kNull) {
    out += "null";
    return;
  }
  begin(out);
  if (!request_.is_chat) {
    out += R"(,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}])";
  } else {
    const bool has_null = script_.dialect == Dialect::kLlamaCpp;
    append(out,
           R"(,"choices":[{{"index":0,"delta":{{"role":"assistant","content":{}}},)"
           R"("logprobs":null,"finish_reason":null}}])",
           has_null ? "null" : R"("")");
  }
  if (reply_.events.opening == Opening::kProgress) {
    append(out, R"(,"prompt_progress":{{"total":{0},"cache":0,"processed":{0},"time_ms":1}})",
           request_.prompt_tokens);
  }
  if (request_.continuous_usage || reply_.events.usage == UsageMode::kEveryEvent) {
    write_usage_object(0, out);
  } else if (reply_.events.null_usage) {
    out += R"(,"usage":null)";
  }
  out += '}';
}

void EventWriter::write_delta(const EventParts& parts, std::string& out) const {
  if (parts.kind == TextKind::kReasoning) {
    append(out, R"({{"{}":"{}"}})", reply_.tokens.reasoning_field, parts.text);
  } else if (parts.kind == TextKind::kTool) {
    out += R"({"content":null,"tool_calls":[{"index":0,)";
    if (parts.is_first_of_kind) out += R"("id":"call-scripted","type":"function",)";
    out += R"("function":{)";
    if (parts.is_first_of_kind) out += R"("name":"scripted",)";
    append(out, R"("arguments":"{}"}}}}]}})", parts.text);
  } else if (parts.finish_reason != nullptr && parts.text.empty()) {
    out += "{}";
  } else {
    append(out, R"({{"content":"{}"}})", parts.text);
  }
}

void EventWriter::write_choice(const EventParts& parts, std::string& out) const {
  out += R"(,"choices":[{"index":0,)";
  if (request_.is_chat) {
    out += R"("delta":)";
    write_delta(parts, out);
  } else {
    append(out, R"("text":"{}")", parts.text);
  }
  out += R"(,"logprobs":null,"finish_reason":)";
  if (parts.finish_reason == nullptr) {
    out += "null";
  } else {
    append(out, R"("{}")", parts.finish_reason);
  }
  if (parts.has_token_ids) {
    out += R"(,"token_ids":[)";
    for (std::int64_t token = parts.first_token; token < parts.end_token; ++token) {
      append(out, "{}{}", token == parts.first_token ? "" : ",", token_id(token));
    }
    out += ']';
  }
  out += "}]";
}

void EventWriter::write_usage_object(std::int64_t tokens, std::string& out) const {
  const std::int64_t told = std::max<std::int64_t>(0, tokens + reply_.events.usage_offset);
  append(out, R"(,"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{})",
         request_.prompt_tokens, told, request_.prompt_tokens + told);
  if (reply_.tokens.reasoning > 0) {
    append(out, R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})",
           std::min(tokens, reply_.tokens.reasoning));
  }
  out += '}';
}

void EventWriter::write_timings(std::int64_t tokens, double elapsed_s, std::string& out) const {
  const double prompt_ms = reply_.timing.first_token_s * 1e3;
  const double predicted_ms = elapsed_s * 1e3;
  append(out,
         R"(,"timings":{{"cache_n":0,"prompt_n":{},"prompt_ms":{},"predicted_n":{},)"
         R"("predicted_ms":{},"predicted_per_second":{}}})",
         request_.prompt_tokens, prompt_ms, tokens, predicted_ms,
         predicted_ms > 0 ? static_cast<double>(tokens) / elapsed_s : 0.0);
}

void EventWriter::write_tokens(const EventParts& parts, std::string& out) const {
  begin(out);
  write_choice(parts, out);
  if (parts.has_usage) {
    write_usage_object(parts.end_token, out);
  } else if (reply_.events.null_usage) {
    out += R"(,"usage":null)";
  }
  if (parts.has_timings) write_timings(parts.end_token, parts.elapsed_s, out);
  out += '}';
}

void EventWriter::write_usage(std::int64_t tokens, double elapsed_s, bool has_timings,
                              std::string& out) const {
  begin(out);
  out += R"(,"choices":[])";
  write_usage_object(tokens, out);
  if (has_timings) write_timings(tokens, elapsed_s, out);
  out += '}';
}

void EventWriter::write_error(std::string& out) const {
  append(out, R"({{"error":{{"message":"{}","type":"InternalServerError","code":{}}}}})",
         escape_json(reply_.fault.message), reply_.fault.status);
}

void EventWriter::write_whole(std::string_view reasoning, std::string_view content,
                              std::string_view tool, const EventParts& parts,
                              std::string& out) const {
  begin(out);
  out += R"(,"choices":[{"index":0,)";
  if (request_.is_chat) {
    append(out, R"("message":{{"role":"assistant","content":"{}")", content);
    if (!reasoning.empty()) append(out, R"(,"{}":"{}")", reply_.tokens.reasoning_field, reasoning);
    if (!tool.empty()) {
      append(out,
             R"(,"tool_calls":[{{"id":"call-scripted","type":"function","function":)"
             R"({{"name":"scripted","arguments":"{}"}}}}])",
             tool);
    }
    out += '}';
  } else {
    append(out, R"("text":"{}{}{}")", reasoning, content, tool);
  }
  append(out, R"(,"logprobs":null,"finish_reason":"{}")", parts.finish_reason);
  if (parts.has_token_ids) {
    out += R"(,"token_ids":[)";
    for (std::int64_t token = 0; token < parts.end_token; ++token) {
      append(out, "{}{}", token == 0 ? "" : ",", token_id(token));
    }
    out += ']';
  }
  out += "}]";
  if (parts.has_usage) write_usage_object(parts.end_token, out);
  if (parts.has_timings) write_timings(parts.end_token, parts.elapsed_s, out);
  out += '}';
}

void EventWriter::frame_comment(std::string_view text, std::string& out) const {
  append(out, ": {}{}", text, line_end());
}

void EventWriter::frame(std::string_view json, std::string& out) const {
  const Framing& framing = reply_.framing;
  const std::string_view end = line_end();
  const std::string_view blank = framing.blank_after_colon ? " " : "";
  if (framing.comments == Comments::kBeforeEach) append(out, ": scripted{}{}", end, end);
  if (framing.event_field) append(out, "event:{}message{}", blank, end);
  // A line break is blank space between two members; inside a text it would be another text.
  const std::size_t cut = framing.two_data_lines ? json.find(",\"") : std::string_view::npos;
  if (cut != std::string_view::npos) {
    append(out, "data:{}{}{}", blank, json.substr(0, cut + 1), end);
    json.remove_prefix(cut + 1);
  }
  if (framing.comments == Comments::kInsideEach) append(out, ": scripted{}", end);
  append(out, "data:{}{}{}{}", blank, json, end, end);
}

}  // namespace moe::scripted_server
