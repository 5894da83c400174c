#include "lib/scripted_server/routes.hpp"

#include <string>

#include <fmt/format.h>

#include "lib/scripted_server/event_text.hpp"

namespace moe::scripted_server {
namespace {

constexpr const char* kJson = "application/json";

// Bodies of the information endpoints; empty: this dialect has no such path.
std::string information(const Script& script, const std::string& path) {
  const std::string model = escape_json(script.model);
  const std::string version = escape_json(script.version);
  const Dialect dialect = script.dialect;
  if (path == "/v1/models") {
    return fmt::format(
        R"({{"object":"list","data":[{{"id":"{}","object":"model","created":1700000000,)"
        R"("owned_by":"scripted","max_model_len":1048576}}]}})",
        model);
  }
  if (path == "/version" && (dialect == Dialect::kVllm || dialect == Dialect::kTensorRtLlm)) {
    return fmt::format(R"({{"version":"{}"}})", version);
  }
  if ((path == "/get_server_info" || path == "/server_info") && dialect == Dialect::kSglang) {
    return fmt::format(R"({{"version":"{}","model_path":"{}","served_model_name":"{}"}})", version,
                       model, model);
  }
  if (path == "/props" && dialect == Dialect::kLlamaCpp) {
    return fmt::format(R"({{"build_info":"{}","model_path":"{}","total_slots":{}}})", version,
                       model, script.slots);
  }
  return {};
}

bool is_authorized(const Script& script, const HttpRequest& request) {
  return script.api_key.empty() || request.authorization == "Bearer " + script.api_key;
}

}  // namespace

Route route_of(const HttpRequest& request) {
  if (request.path == "/v1/completions" || request.path == "/completions") {
    return Route::kCompletions;
  }
  if (request.path == "/v1/chat/completions" || request.path == "/chat/completions") {
    return Route::kChat;
  }
  return Route::kOther;
}

Timeline error_reply(int status, std::string_view message, bool keeps_alive) {
  const std::string body =
      fmt::format(R"({{"error":{{"message":"{}","type":"{}","code":{}}}}})", escape_json(message),
                  status < 500 ? "BadRequestError" : "InternalServerError", status);
  return make_plain(status, kJson, body, keeps_alive, false);
}

std::optional<Timeline> plain_reply(const Script& script, const HttpRequest& request,
                                    const Counters& counters, double uptime_s) {
  const bool keeps = request.keeps_alive;
  const bool is_head = request.method == "HEAD";
  const bool is_ready = uptime_s >= script.ready_after_s;
  const Route route = route_of(request);
  if (request.path == "/health") {
    return make_plain(is_ready ? 200 : 503, "text/plain", "", keeps, is_head);
  }
  if (!is_authorized(script, request)) return error_reply(401, "no valid key", keeps);
  if (!is_ready) return error_reply(503, "the model is loading", keeps);
  if (route != Route::kOther) {
    if (request.method == "POST") return std::nullopt;
    return error_reply(405, "only POST is answered here", keeps);
  }
  if (request.method != "GET" && !is_head)
    return error_reply(405, "only GET is answered here", keeps);
  if (request.path == "/metrics" && script.has_metrics) {
    return make_plain(200, "text/plain; version=0.0.4; charset=utf-8",
                      metrics_page(script, counters), keeps, is_head);
  }
  const std::string body = information(script, request.path);
  if (body.empty()) return error_reply(404, "no such path", keeps);
  return make_plain(200, kJson, body, keeps, is_head);
}

}  // namespace moe::scripted_server
