// Requests of Transport over sockets of its own, and how a request is handed to libcurl.

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/text.hpp"
#include "lib/client/transport_impl.hpp"

namespace moe::client {
namespace {

constexpr std::string_view kScheme = "http://";

// What libcurl would have to translate before it asks for it is left to libcurl.
bool is_simple(std::string_view host) {
  for (const char byte : host) {
    if (byte <= ' ' || byte > '~' || byte == '%' || byte == '@') return false;
  }
  return !host.empty();
}

}  // namespace

void Transport::Impl::set_up_requests() {
  std::string_view base = endpoint.base_url;
  if (!is_plain || !base.starts_with(kScheme)) {
    is_plain = false;
    return;
  }
  base.remove_prefix(kScheme.size());
  std::string_view host = base.substr(0, base.find('/'));
  request_target = "POST " + std::string(base.substr(host.size()));
  is_plain = is_simple(host);
  if (host.ends_with(":80")) host.remove_suffix(3);
  request_fields = fmt::format(" HTTP/1.1\r\nHost: {}\r\n", host);
  for (const curl_slist* field = headers.get(); field != nullptr; field = field->next) {
    const std::string_view line = field->data;
    // A name alone tells libcurl to leave a field out.
    if (!line.ends_with(':')) request_fields.append(line).append("\r\n");
  }
}

std::string Transport::Impl::request_head(const Exchange& exchange, std::size_t body_bytes) const {
  std::string head = request_target + exchange.path + request_fields;
  if (!exchange.request_id.empty()) head += "X-Request-Id: " + exchange.request_id + "\r\n";
  return head + fmt::format("Content-Length: {}\r\n\r\n", body_bytes);
}

bool Transport::Impl::send_here(Exchange* exchange) {
  if (!is_plain || exchange->is_second) return false;
  exchange->stood = connections->take();
  if (exchange->stood.socket < 0) return false;
  exchange->connect_s = 0.0;
  adopt(exchange, exchange->stood.socket);
  exchange->is_sent = true;
  exchange->listener->on_sent(monotonic_s());
  send_rest(exchange);
  return true;
}

void Transport::Impl::send_rest(Exchange* exchange) {
  const std::string& request = exchange->request;
  while (exchange->num_sent < request.size()) {
    const ssize_t size = send(exchange->socket, request.data() + exchange->num_sent,
                              request.size() - exchange->num_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) {
      on_broken(exchange, std::generic_category().message(errno));
      return;
    }
    exchange->num_sent += static_cast<std::size_t>(size);
  }
  if (!watch_taken(*exchange)) {
    fail_body(exchange, Failure::kReset, "the connection cannot be watched");
  }
}

void Transport::Impl::hand_to_curl(Exchange* exchange, bool is_fresh) {
  CURL* easy = exchange->easy;
  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, is_fresh ? 1L : 0L);
  HeaderList fields = request_headers(endpoint, true, exchange->request_id);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, fields.get());
  exchange->headers = std::move(fields);
  std::string url = endpoint.base_url + exchange->path;
  if (url != exchange->url) {
    exchange->url = std::move(url);
    curl_easy_setopt(easy, CURLOPT_URL, exchange->url.c_str());
  }
  const double left_s = std::max(1e-3, exchange->deadline_s - monotonic_s());
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(left_s * 1e3));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(exchange->request.size() - exchange->head_bytes));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange->request.c_str() + exchange->head_bytes);
  curl_multi_add_handle(multi, easy);
}

void Transport::Impl::take_head_line(Exchange* exchange, std::string_view line, double time_s) {
  const int before = exchange->head.status();
  exchange->head.take_line(line);
  const int status = exchange->head.status();
  if (status != before && status >= 200) exchange->listener->on_status(status, time_s);
}

std::size_t Transport::Impl::take_head(Exchange* exchange, std::string_view bytes, double time_s) {
  std::size_t at = 0;
  std::string& partial = exchange->partial_line;
  while (at < bytes.size() && !exchange->head.is_ended() && !exchange->head.is_malformed()) {
    const std::size_t end = bytes.find('\n', at);
    partial.append(bytes.substr(at, end - at));
    if (end == std::string_view::npos) {
      at = bytes.size();
      break;
    }
    at = end + 1;
    if (partial.ends_with('\r')) partial.pop_back();
    take_head_line(exchange, partial, time_s);
    partial.clear();
  }
  exchange->num_head_bytes += at;
  return at;
}

void Transport::Impl::on_closed(Exchange* exchange) {
  const AnswerHead& head = exchange->head;
  if (head.is_ended() && head.framing() == BodyFraming::kUntilClose) {
    end_body(exchange, false);
  } else if (head.is_ended()) {
    on_broken(exchange, "the connection was closed inside the body");
  } else {
    on_broken(exchange, "the connection was closed before the body");
  }
}

void Transport::Impl::on_broken(Exchange* exchange, const std::string& error) {
  if (!exchange->stood.is_kept || exchange->has_answer) {
    fail_body(exchange, Failure::kReset, error);
    return;
  }
  (void)close(release(exchange));
  exchange->is_second = true;
  exchange->is_running = false;
  --num_running;
  queued.push_front(exchange);
}

}  // namespace moe::client
