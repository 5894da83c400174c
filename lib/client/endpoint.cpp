#include "lib/client/endpoint.hpp"

#include <memory>

#include <curl/curl.h>
#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::client {
namespace {

using UrlHandle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

[[noreturn]] void fail(const std::string& reason) {
  throw Error(ErrorCode::kUsage,
              "the server's address " + reason + "; give it as http://HOST:PORT or https://HOST");
}

}  // namespace

Endpoint parse_endpoint(const std::string& given) {
  if (given.empty()) fail("is empty");
  const std::string url = given.find("://") == std::string::npos ? "http://" + given : given;
  const UrlHandle handle(curl_url(), &curl_url_cleanup);
  if (handle == nullptr) throw Error(ErrorCode::kRuntime, "no memory for a URL");
  if (curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    fail(fmt::format("is not a URL: {}", printable(given)));
  }
  if (!part_of(handle.get(), CURLUPART_USER).empty() ||
      !part_of(handle.get(), CURLUPART_PASSWORD).empty()) {
    // Not repeated: it holds a secret.
    fail("holds a user or a password (use --api-key-file)");
  }
  const std::string scheme = part_of(handle.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    fail(fmt::format("has the scheme {}", printable(scheme)));
  }
  if (!part_of(handle.get(), CURLUPART_QUERY).empty() ||
      !part_of(handle.get(), CURLUPART_FRAGMENT).empty()) {
    fail(fmt::format("has a query or a fragment: {}", printable(given)));
  }
  std::string path = part_of(handle.get(), CURLUPART_PATH);
  while (!path.empty() && path.back() == '/') path.pop_back();
  if (path.ends_with("/v1")) path.resize(path.size() - 3);
  Endpoint endpoint;
  endpoint.is_tls = scheme == "https";
  const std::string host = part_of(handle.get(), CURLUPART_HOST);
  const std::string port = part_of(handle.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  endpoint.display = fmt::format("{}:{}{}", host, port, path);
  endpoint.base_url = fmt::format("{}://{}", scheme, endpoint.display);
  return endpoint;
}

}  // namespace moe::client
