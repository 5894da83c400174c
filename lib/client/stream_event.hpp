#pragma once

// What one event of a streamed answer, or the whole of a plain one, says. The same struct serves
// completions and chat and every dialect: a reader takes what is there and asks for no name of a
// server. Views point into the reader and are valid until its next call.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moe::client {

enum class EventKind : std::uint8_t {
  kChoices,    // at least one choice; usage may ride along
  kUsageOnly,  // usage and no choice
  kError,      // an error object in place of an answer
  kDone,       // [DONE]
  kNull,       // the JSON literal null
  kOther,      // JSON of another shape (a server's own endpoint)
  kMalformed,  // not JSON
};

// Tokens as the server counts them; absent where it does not say.
struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::optional<std::int64_t> cached_tokens;
  std::optional<std::int64_t> reasoning_tokens;
};

// llama.cpp's own measurement, on its last event (or on each, when asked).
struct ServerTimings {
  std::optional<double> prompt_s;
  std::optional<double> predicted_s;
  std::optional<std::int64_t> predicted_tokens;
};

struct ChoiceDelta {
  std::int32_t index = 0;
  std::string_view text;       // content or text
  std::string_view reasoning;  // reasoning or reasoning_content
  std::string_view tool_text;  // names and arguments of tool calls, when there is one
  std::string_view finish_reason;
  bool has_role = false;
  bool has_tool = false;
  bool has_token_ids = false;
  std::int32_t num_token_ids = 0;   // of this event
  std::int32_t first_token_id = 0;  // position in StreamEvent::token_ids
  std::int32_t num_logprobs = 0;

  // Something a user can see or a program can use.
  [[nodiscard]] bool has_output() const { return !text.empty() || !reasoning.empty() || has_tool; }
};

struct StreamEvent {
  EventKind kind = EventKind::kOther;
  std::vector<ChoiceDelta> choices;
  std::vector<std::int32_t> token_ids;  // of all choices, one after the other
  std::optional<Usage> usage;
  std::optional<ServerTimings> timings;
  bool has_prompt_progress = false;
  std::string_view error_message;
  std::string_view error_type;
  std::int64_t error_code = 0;
  std::string_view model;
  std::string_view fingerprint;
};

}  // namespace moe::client
