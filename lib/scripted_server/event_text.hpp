#pragma once

// The JSON of the events and whole replies of each dialect, and how an event is framed as a
// server-sent event.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/scripted_server/generation_request.hpp"
#include "lib/scripted_server/script.hpp"

namespace moe::scripted_server {

// Which part of a message a text belongs to.
enum class TextKind : std::uint8_t { kContent, kReasoning, kTool };

// What one event says. Texts are escaped for JSON.
struct EventParts {
  TextKind kind = TextKind::kContent;
  std::string text;
  bool is_first_of_kind = false;  // a tool call names its function once
  const char* finish_reason = nullptr;
  std::int64_t first_token = 0;  // tokens [first_token, end_token) of the reply
  std::int64_t end_token = 0;
  bool has_token_ids = false;
  bool has_timings = false;
  bool has_usage = false;
  double elapsed_s = 0.0;  // since the first token, for the timings
};

class EventWriter {
 public:
  EventWriter(const Script& script, const Reply& reply, const GenerationRequest& request);

  // Appends the JSON of an event to `out`.
  void write_opening(std::string& out) const;
  void write_tokens(const EventParts& parts, std::string& out) const;
  // Usage in an event without choices.
  void write_usage(std::int64_t tokens, double elapsed_s, bool has_timings, std::string& out) const;
  void write_error(std::string& out) const;
  // A whole reply that is not streamed. Texts are escaped.
  void write_whole(std::string_view reasoning, std::string_view content, std::string_view tool,
                   const EventParts& parts, std::string& out) const;

  // Appends JSON as one server-sent event, framed as the reply says.
  void frame(std::string_view json, std::string& out) const;
  void frame_comment(std::string_view text, std::string& out) const;

  // The id of token `index` of the reply; equal texts have equal ids.
  [[nodiscard]] std::int64_t token_id(std::int64_t index) const;

 private:
  void begin(std::string& out) const;
  void write_choice(const EventParts& parts, std::string& out) const;
  void write_delta(const EventParts& parts, std::string& out) const;
  void write_usage_object(std::int64_t tokens, std::string& out) const;
  void write_timings(std::int64_t tokens, double elapsed_s, std::string& out) const;
  [[nodiscard]] std::string_view line_end() const;

  const Script& script_;
  const Reply& reply_;
  const GenerationRequest& request_;
  std::string model_;  // escaped
};

// A text as it stands between the quotes of JSON; what is not UTF-8 becomes U+FFFD.
[[nodiscard]] std::string escape_json(std::string_view text);

}  // namespace moe::scripted_server
