#pragma once

// What a path is, and the replies that are no generation.

#include <cstdint>
#include <optional>

#include "lib/scripted_server/http_request.hpp"
#include "lib/scripted_server/metrics_page.hpp"
#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/timeline.hpp"

namespace moe::scripted_server {

enum class Route : std::uint8_t { kCompletions, kChat, kOther };
[[nodiscard]] Route route_of(const HttpRequest& request);

// The reply to anything that is no generation, and to a generation that is refused before its body
// is read (not ready, no key). Empty: go on with the generation.
[[nodiscard]] std::optional<Timeline> plain_reply(const Script& script, const HttpRequest& request,
                                                  const Counters& counters, double uptime_s);

// {"error": ...} in the dialect's form.
[[nodiscard]] Timeline error_reply(int status, std::string_view message, bool keeps_alive);

}  // namespace moe::scripted_server
