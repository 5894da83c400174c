#include "lib/client/curl_setup.hpp"

#include <mutex>

#include "lib/base/error.hpp"

namespace moe::client {
namespace {

void append(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw Error(ErrorCode::kRuntime, "no memory for request headers");
  (void)list.release();
  list.reset(longer);
}

}  // namespace

CURL* make_easy() {
  static std::once_flag once;
  static CURLcode code = CURLE_OK;
  std::call_once(once, [] { code = curl_global_init(CURL_GLOBAL_ALL); });
  CURL* easy = code == CURLE_OK ? curl_easy_init() : nullptr;
  if (easy == nullptr) throw Error(ErrorCode::kUnavailable, "libcurl cannot be initialised");
  return easy;
}

HeaderList request_headers(const Endpoint& endpoint, bool has_body, const std::string& request_id) {
  HeaderList list;
  append(list, "User-Agent: moe-bench");
  append(list, "Accept: */*");
  // An interim answer before the body costs a round trip that no user's client waits for.
  append(list, "Expect:");
  if (!request_id.empty()) append(list, "X-Request-Id: " + request_id);
  if (has_body) append(list, "Content-Type: application/json");
  if (!endpoint.api_key.empty()) append(list, "Authorization: Bearer " + endpoint.api_key);
  return list;
}

void set_endpoint(CURL* easy, const Endpoint& endpoint, const HeaderList& headers) {
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  // An empty string, not a null pointer, which would let http_proxy of the environment in.
  curl_easy_setopt(easy, CURLOPT_PROXY, endpoint.proxy.c_str());
  curl_easy_setopt(easy, CURLOPT_NOPROXY, "");  // likewise no_proxy, which would bypass the proxy
  curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, endpoint.checks_tls ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, endpoint.checks_tls ? 2L : 0L);
  if (!endpoint.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, endpoint.ca_file.c_str());
}

}  // namespace moe::client
