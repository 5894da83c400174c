#include "lib/client/http_fetch.hpp"

#include <array>
#include <memory>

#include <curl/curl.h>

#include "lib/base/text.hpp"
#include "lib/client/curl_setup.hpp"

namespace moe::client {
namespace {

struct Sink {
  std::string* body;
  std::int64_t max_bytes;
};

std::size_t take(char* data, std::size_t, std::size_t size, void* context) {
  auto* sink = static_cast<Sink*>(context);
  if (static_cast<std::int64_t>(sink->body->size() + size) > sink->max_bytes) return 0;
  sink->body->append(data, size);
  return size;
}

}  // namespace

FetchResult http_fetch(const Endpoint& endpoint, const std::string& path,
                       const FetchOptions& options) {
  FetchResult result;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(make_easy(), &curl_easy_cleanup);
  const HeaderList headers = request_headers(endpoint, !options.post_body.empty());
  set_endpoint(easy.get(), endpoint, headers);
  const std::string url = endpoint.base_url + path;
  Sink sink{&result.body, options.max_bytes};
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout_s * 1e3));
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &take);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &sink);
  if (!options.post_body.empty()) {
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(options.post_body.size()));
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, options.post_body.c_str());
  }
  // Says more than the code's name: which name a certificate is for, why it is not trusted.
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, detail.data());
  const CURLcode code = curl_easy_perform(easy.get());
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (code == CURLE_OK) {
    result.status = static_cast<int>(status);
  } else {
    result.error = printable(detail[0] != '\0' ? detail.data() : curl_easy_strerror(code));
    result.is_untrusted = code == CURLE_PEER_FAILED_VERIFICATION ||
                          code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_CACERT_BADFILE;
  }
  return result;
}

}  // namespace moe::client
