#pragma once

// Before any load: is the server there, what does it call its model, and what of our requests does
// it take?

#include <string>
#include <vector>

#include "lib/app/bench/serve_args.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/client/endpoint.hpp"
#include "lib/client/request_body.hpp"
#include "lib/client/server_metrics.hpp"

namespace moe::app {

struct ServeTarget {
  client::Endpoint endpoint;
  client::ServerIdentity identity;
  client::Api api = client::Api::kCompletions;
  client::BodyOptions body;
  std::vector<std::string> given_up;  // fields that the server refused
};

// The endpoint with its key. Throws Error(kUsage), Error(kInput).
[[nodiscard]] client::Endpoint make_endpoint(const std::string& url, const ServerArgs& args);

// Waits until the server answers, asks for its model, and sends one short request to find the
// fields that it takes. `prefers_chat` decides for --api auto. Throws Error(kRuntime) when it does
// not get ready or refuses even the plainest request.
[[nodiscard]] ServeTarget probe_target(const client::Endpoint& endpoint, const ServerArgs& args,
                                       const RequestArgs& request, bool prefers_chat, bool uses_ids,
                                       const ToolContext& context);

}  // namespace moe::app
