#pragma once

// What every handle of libcurl has in common: HTTP/1.1 over TCP, no proxy and no file of passwords
// from the environment, no signals, certificates checked, the key in a header.

#include <memory>
#include <string>

#include <curl/curl.h>

#include "lib/client/endpoint.hpp"

namespace moe::client {

// Global initialisation happens once, on the first call. Throws Error(kUnavailable).
[[nodiscard]] CURL* make_easy();

struct HeaderListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, HeaderListDeleter>;

// An empty request id is not sent.
[[nodiscard]] HeaderList request_headers(const Endpoint& endpoint, bool has_body,
                                         const std::string& request_id = {});

// `headers` must outlive the handle's transfers.
void set_endpoint(CURL* easy, const Endpoint& endpoint, const HeaderList& headers);

}  // namespace moe::client
