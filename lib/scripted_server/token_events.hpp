#pragma once

// Which tokens of a reply share an event, and when each event is due.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/scripted_server/event_text.hpp"
#include "lib/scripted_server/generation_request.hpp"
#include "lib/scripted_server/script.hpp"

namespace moe::scripted_server {

struct TokenEvent {
  double at_s = 0.0;
  EventParts parts;
};

struct TokenPlan {
  std::vector<TokenEvent> events;
  // Behind the last of `events`, at last_s.
  std::optional<EventParts> finish_event;
  std::int64_t tokens = 0;  // generated, those of the finish event and withheld ones included
  double last_s = 0.0;      // when the last token is due
  double elapsed_s = 0.0;   // from the first token to the last
  bool has_token_ids = false;
  const char* finish_reason = "stop";
};

// A reply that a fault ends early has the tokens before the fault and no finish event.
[[nodiscard]] TokenPlan plan_tokens(const Reply& reply, const GenerationRequest& request);

// When token `index`, counted from 0, is due.
[[nodiscard]] double token_due_s(const Reply& reply, std::int64_t index);

}  // namespace moe::scripted_server
