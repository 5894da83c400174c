#pragma once

// Where a server is and how it is reached: a base URL, a key that never leaves memory, TLS.

#include <string>

namespace moe::client {

struct Endpoint {
  std::string base_url;  // "http://127.0.0.1:8000", without a slash at the end
  std::string api_key;   // empty: none. Never in a report, never in a message
  std::string ca_file;   // empty: the system's
  bool checks_tls = true;
  std::string proxy;  // empty: none; nothing is taken from the environment

  // Host and port only, for reports: a URL can hold a user's password.
  std::string display;
  bool is_tls = false;
};

// Accepts "host:port", "http://...", "https://..."; a path of "/v1" at the end is dropped. Throws
// Error(kUsage) for another scheme, a user or password inside the URL, a query, or an empty host.
[[nodiscard]] Endpoint parse_endpoint(const std::string& url);

}  // namespace moe::client
