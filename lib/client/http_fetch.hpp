#pragma once

// One blocking request beside the load: readiness, model list, metrics pages. Not for timing.

#include <string>

#include "lib/client/endpoint.hpp"

namespace moe::client {

struct FetchResult {
  int status = 0;             // 0: no answer
  std::string body;           // at most the limit
  std::string error;          // why there is no answer, one line
  bool is_untrusted = false;  // its certificate was refused: no second attempt helps
};

struct FetchOptions {
  double timeout_s = 10.0;
  std::int64_t max_bytes = std::int64_t{16} << 20;
  std::string post_body;  // empty: GET
};

// `path` starts with a slash. Safe to call from several threads; does not throw for what a server
// does.
[[nodiscard]] FetchResult http_fetch(const Endpoint& endpoint, const std::string& path,
                                     const FetchOptions& options = {});

}  // namespace moe::client
