#include "tests/lib/client/load_support.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "lib/base/progress.hpp"
#include "lib/json/read.hpp"

namespace moe::client {

scripted_server::Script script_of(const std::string& json) {
  json::Json document = json::parse(json, "script");
  document["schema_version"] = 1;
  return scripted_server::parse_script(document, "script");
}

void make_fast(scripted_server::Script& script) {
  for (scripted_server::Reply& reply : script.replies) {
    reply.timing.headers_after_s = 0.0;
    reply.timing.first_token_s = 0.004;
    reply.timing.token_interval_s = 0.001;
    reply.timing.stalls.clear();
    if (reply.events.opening_s) reply.events.opening_s = 0.001;
    reply.events.usage_after_s = std::min(reply.events.usage_after_s, 0.01);
    reply.events.done_after_s = std::min(reply.events.done_after_s, 0.01);
    reply.fault.after_s = std::min(reply.fault.after_s, 0.01);
  }
  script.ready_after_s = 0.0;
}

Driven drive(const scripted_server::Script& script, const LoadPlan& plan,
             const DriveOptions& options) {
  scripted_server::ServerThread server(script);
  BodyOptions body;
  body.model = script.model;
  body.is_stream = options.is_stream;
  body.wants_token_ids = options.wants_extras;
  body.wants_continuous_usage = options.wants_extras;
  std::unique_ptr<RequestSource> source;
  if (options.api == Api::kChat) {
    std::vector<TextConversation> talks;
    for (const char* text : {"one two", "three four five", "six"}) {
      talks.push_back({{text}, {options.output_tokens}, ""});
    }
    source =
        std::make_unique<TextSource>(std::move(talks), Api::kChat, body, options.output_tokens, 1);
  } else {
    RandomIdsOptions ids;
    ids.prompt_tokens = workload::LengthDistribution::fixed(options.prompt_tokens);
    ids.output_tokens = workload::LengthDistribution::fixed(options.output_tokens);
    ids.end_id = 100;
    source = std::make_unique<RandomIdsSource>(ids, body);
  }
  NullProgress progress;
  LoadTools tools;
  tools.source = source.get();
  tools.progress = &progress;
  Endpoint endpoint = parse_endpoint(server.url());
  endpoint.api_key = script.api_key;
  Driven driven;
  driven.result = run_load(endpoint, plan, tools);
  driven.log = std::move(server.stop());
  return driven;
}

}  // namespace moe::client
