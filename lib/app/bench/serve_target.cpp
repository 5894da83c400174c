#include "lib/app/bench/serve_target.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/client/event_reader.hpp"
#include "lib/client/http_fetch.hpp"
#include "lib/json/read.hpp"

namespace moe::app {
namespace {

constexpr double kReadyInterval_s = 0.25;

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

std::string read_key(const ServerArgs& args) {
  if (!args.api_key_file.empty() && !args.api_key_env.empty()) {
    throw Error(ErrorCode::kUsage, "give one of --api-key-file and --api-key-env");
  }
  std::string key;
  std::string from;
  if (!args.api_key_file.empty()) {
    from = args.api_key_file;
    std::ifstream file(args.api_key_file);
    if (!file || !std::getline(file, key)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: expected a file whose first line is the key", printable(from)));
    }
  } else if (!args.api_key_env.empty()) {
    from = args.api_key_env;
    const char* value = std::getenv(args.api_key_env.c_str());
    if (value == nullptr || *value == '\0') {
      throw Error(ErrorCode::kInput, fmt::format("--api-key-env: {} is not set", printable(from)));
    }
    key = value;
  }
  key = trimmed(key);
  const bool is_clean = std::all_of(key.begin(), key.end(), [](char c) { return c > 32; });
  if (!from.empty() && (key.empty() || !is_clean)) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: the key is empty or holds blanks or control characters", printable(from)));
  }
  return key;
}

// Any answer below 500 means that the server is up; 503 is what they say while they load.
void wait_until_ready(const client::Endpoint& endpoint, double timeout_s,
                      const ToolContext& context) {
  const SteadyClock clock;
  const double until_s = clock.now_s() + timeout_s;
  client::FetchOptions options;
  options.timeout_s = std::max(1.0, timeout_s);
  client::FetchResult last;
  for (;;) {
    last = client::http_fetch(endpoint, "/v1/models", options);
    if (last.status > 0 && last.status < 500) return;
    if (last.is_untrusted) {
      throw Error(ErrorCode::kRuntime,
                  fmt::format("{}: the server's certificate is not trusted ({}); give the "
                              "certificate of its authority with --ca-file, and the host name that "
                              "it is for",
                              endpoint.display, last.error));
    }
    if (context.interrupt->requested()) {
      throw Error(ErrorCode::kRuntime, "interrupted while waiting for the server");
    }
    if (clock.now_s() + kReadyInterval_s > until_s) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(kReadyInterval_s));
  }
  throw Error(ErrorCode::kRuntime,
              fmt::format("{}: no server answered within {:.0f} s ({}); start it, or give more "
                          "--ready-timeout",
                          endpoint.display, timeout_s,
                          last.status > 0 ? fmt::format("HTTP {}", last.status) : last.error));
}

std::string extra_members(const std::string& text) {
  if (text.empty()) return {};
  const json::Json object = json::parse(text, "--extra-body");
  if (!object.is_object()) throw Error(ErrorCode::kUsage, "--extra-body: expected a JSON object");
  if (object.empty()) return {};
  const std::string dumped = object.dump();
  return dumped.substr(1, dumped.size() - 2);
}

std::string probe_body(const ServeTarget& target, bool uses_ids) {
  if (target.api == client::Api::kChat) return client::chat_body(target.body, {{"user", "Hi"}}, 2);
  constexpr std::array<std::int32_t, 4> kIds = {11, 12, 13, 14};
  return uses_ids ? client::ids_body(target.body, kIds, 2)
                  : client::text_body(target.body, "Hi", 2);
}

std::string error_of(const client::FetchResult& answer) {
  if (answer.status == 0) return answer.error;
  client::EventReader reader;
  const client::StreamEvent& event = reader.read(answer.body);
  const std::string words = event.error_message.empty() ? printable(answer.body).substr(0, 200)
                                                        : printable(event.error_message);
  return fmt::format("HTTP {}: {}", answer.status, words);
}

class Negotiation {
 public:
  Negotiation(bool uses_ids, double timeout_s, ServeTarget& target)
      : uses_ids_(uses_ids), timeout_s_(timeout_s), target_(target) {}

  void run(bool is_auto) {
    while (!is_taken()) {
      const bool is_refusal = answer_.status == 400 || answer_.status == 422;
      if (is_refusal && give_up_next()) continue;
      if (is_auto && !uses_ids_ && (answer_.status == 404 || answer_.status == 405) &&
          target_.api == client::Api::kCompletions) {
        target_.api = client::Api::kChat;
        continue;
      }
      throw Error(
          ErrorCode::kRuntime,
          fmt::format("{}{}: a request of two tokens was not answered: {}",
                      target_.endpoint.display, client::path_of(target_.api), error_of(answer_)));
    }
    ask_again();
  }

 private:
  bool is_taken() {
    client::FetchOptions options;
    options.timeout_s = timeout_s_;
    options.post_body = probe_body(target_, uses_ids_);
    answer_ = client::http_fetch(target_.endpoint, client::path_of(target_.api), options);
    return answer_.status / 100 == 2;
  }

  bool give_up_next() {
    for (const client::OptionalField& field : client::optional_fields()) {
      if (!(target_.body.*field.wish)) continue;
      target_.body.*field.wish = false;
      dropped_.push_back(&field);
      return true;
    }
    return false;
  }

  // Only the last one is known to have been the trouble; the others get a second chance.
  void ask_again() {
    for (std::size_t i = 0; i < dropped_.size(); ++i) {
      if (i + 1 < dropped_.size()) {
        target_.body.*dropped_[i]->wish = true;
        if (is_taken()) continue;
        target_.body.*dropped_[i]->wish = false;
      }
      target_.given_up.emplace_back(dropped_[i]->name);
    }
  }

  bool uses_ids_;
  double timeout_s_;
  ServeTarget& target_;
  client::FetchResult answer_;
  std::vector<const client::OptionalField*> dropped_;
};

}  // namespace

client::Endpoint make_endpoint(const std::string& url, const ServerArgs& args) {
  client::Endpoint endpoint = client::parse_endpoint(url);
  endpoint.api_key = read_key(args);
  if (!args.ca_file.empty() && !std::ifstream(args.ca_file)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a file of certificates (--ca-file)",
                                               printable(args.ca_file)));
  }
  endpoint.ca_file = args.ca_file;
  endpoint.checks_tls = !args.is_insecure;
  endpoint.proxy = args.proxy;
  return endpoint;
}

ServeTarget probe_target(const client::Endpoint& endpoint, const ServerArgs& args,
                         const RequestArgs& request, bool prefers_chat, bool uses_ids,
                         const ToolContext& context) {
  ServeTarget target;
  target.endpoint = endpoint;
  wait_until_ready(endpoint, args.ready_timeout_s, context);
  target.identity = client::identify_server(endpoint);
  target.api = args.api == "chat" || (args.api == "auto" && prefers_chat)
                   ? client::Api::kChat
                   : client::Api::kCompletions;
  if (target.api == client::Api::kChat && uses_ids) {
    throw Error(ErrorCode::kUsage, "--api chat takes texts, not token ids: give --dataset with it");
  }
  target.body.model = args.model;
  if (target.body.model.empty() && !target.identity.models.empty()) {
    target.body.model = target.identity.models.front();
  }
  if (target.body.model.empty()) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: /v1/models lists no model; give --model", endpoint.display));
  }
  target.body.is_stream = !request.has_no_stream;
  target.body.ignores_eos = !request.keeps_eos;
  target.body.temperature = request.temperature;
  target.body.extra = extra_members(request.extra_body);
  Negotiation(uses_ids, args.timeout_s, target).run(args.api == "auto");
  return target;
}

}  // namespace moe::app
