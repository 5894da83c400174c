// How Transport sets libcurl up, and what libcurl calls.

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/client/transport_impl.hpp"

namespace moe::client {
namespace {

struct UrlParts {
  std::string host;
  std::string port;
};

UrlParts split_url(const std::string& url) {
  UrlParts parts;
  CURLU* handle = curl_url();
  if (handle != nullptr && curl_url_set(handle, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK) {
    char* text = nullptr;
    if (curl_url_get(handle, CURLUPART_HOST, &text, 0) == CURLUE_OK) parts.host = text;
    curl_free(text);
    text = nullptr;
    if (curl_url_get(handle, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) == CURLUE_OK) {
      parts.port = text;
    }
    curl_free(text);
  }
  curl_url_cleanup(handle);
  return parts;
}

}  // namespace

Transport::Impl::Impl(const Endpoint& given, const TransportOptions& given_options)
    : endpoint(given), options(given_options), headers(request_headers(given, true)) {
  is_plain = options.takes_bodies && !endpoint.is_tls && endpoint.proxy.empty();
  epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) throw Error(ErrorCode::kRuntime, "epoll_create1 failed");
  try {
    set_up_multi();
    resolve_once();
    set_up_requests();
  } catch (...) {
    if (multi != nullptr) curl_multi_cleanup(multi);
    (void)close(epoll);
    throw;
  }
}

Transport::Impl::~Impl() {
  for (const std::unique_ptr<Exchange>& exchange : exchanges) {
    if (exchange->socket >= 0) {
      (void)close(exchange->socket);
    } else if (exchange->is_running) {
      curl_multi_remove_handle(multi, exchange->easy);
    }
    curl_easy_cleanup(exchange->easy);
  }
  curl_multi_cleanup(multi);
  connections.reset();
  (void)close(epoll);
}

void Transport::Impl::set_up_multi() {
  curl_easy_cleanup(make_easy());  // global initialisation
  multi = curl_multi_init();
  if (multi == nullptr) throw Error(ErrorCode::kUnavailable, "libcurl cannot be initialised");
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, &Impl::on_socket);
  curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, &Impl::on_timer);
  curl_multi_setopt(multi, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(options.max_connections));
  curl_multi_setopt(multi, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

void Transport::Impl::resolve_once() {
  std::vector<SocketAddress> found;
  if (endpoint.proxy.empty()) {
    const UrlParts parts = split_url(endpoint.base_url);
    found = resolve(parts.host, parts.port);
    std::string line = fmt::format("{}:{}:", parts.host, parts.port);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool is_v6 = found[i].family == AF_INET6;
      line += fmt::format("{}{}{}{}", i == 0 ? "" : ",", is_v6 ? "[" : "", found[i].text,
                          is_v6 ? "]" : "");
    }
    addresses.reset(curl_slist_append(nullptr, line.c_str()));
  }
  connections = std::make_unique<Connections>(std::move(found), epoll, options.max_connections);
}

std::unique_ptr<Transport::Exchange> Transport::Impl::make_exchange() {
  auto exchange = std::make_unique<Exchange>();
  exchange->owner = this;
  exchange->easy = make_easy();
  CURL* easy = exchange->easy;
  set_endpoint(easy, endpoint, headers);
  if (addresses != nullptr) curl_easy_setopt(easy, CURLOPT_RESOLVE, addresses.get());
  curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange.get());
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &Impl::on_open);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, &Impl::on_option);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &Impl::on_close);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, this);
  curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, &Impl::on_request);
  curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Impl::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Impl::on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout_s * 1e3));
  if (is_plain) curl_easy_setopt(easy, CURLOPT_HTTP_TRANSFER_DECODING, 0L);
  return exchange;
}

int Transport::Impl::on_socket(CURL*, curl_socket_t fd, int what, void* context, void* known) {
  auto* self = static_cast<Impl*>(context);
  if (what == CURL_POLL_REMOVE) {
    // It stays, under another name (take_over).
    if (self->being_taken != nullptr) return 0;
    (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, fd, nullptr);
    if (known != nullptr) curl_multi_assign(self->multi, fd, nullptr);
    return 0;
  }
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(fd);
  event.events =
      ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0U) | ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0U);
  // It may be there under another name, or have been another socket when it came.
  const int operation = known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(self->epoll, operation, fd, &event) != 0) {
    const int other = errno == EEXIST ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    (void)epoll_ctl(self->epoll, other, fd, &event);
  }
  if (known == nullptr) curl_multi_assign(self->multi, fd, self);
  return 0;
}

int Transport::Impl::on_timer(CURLM*, long timeout_ms, void* context) {
  auto* self = static_cast<Impl*>(context);
  self->curl_deadline_s =
      timeout_ms < 0 ? -1.0 : monotonic_s() + static_cast<double>(timeout_ms) * 1e-3;
  return 0;
}

curl_socket_t Transport::Impl::on_open(void* context, curlsocktype, curl_sockaddr* address) {
  auto* exchange = static_cast<Exchange*>(context);
  Impl* self = exchange->owner;
  // Over plain HTTP what stands ready is not for libcurl.
  if (!self->is_plain) exchange->stood = self->connections->take();
  int fd = exchange->stood.socket;
  if (fd < 0) {
    fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0) (void)enable_receive_times(fd);
  }
  if (fd < 0) return CURL_SOCKET_BAD;
  ++self->num_sockets;
  return fd;
}

int Transport::Impl::on_option(void* context, curl_socket_t, curlsocktype) {
  return static_cast<Exchange*>(context)->stood.socket >= 0 ? CURL_SOCKOPT_ALREADY_CONNECTED
                                                            : CURL_SOCKOPT_OK;
}

int Transport::Impl::on_close(void* context, curl_socket_t fd) {
  auto* self = static_cast<Impl*>(context);
  --self->num_sockets;
  if (self->being_taken == nullptr) return close(fd);
  self->being_taken->socket = fd;
  self->being_taken = nullptr;
  return 0;
}

int Transport::Impl::on_request(void* context, char*, char*, int, int) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->is_sent = true;
  exchange->listener->on_sent(monotonic_s());
  return CURL_PREREQFUNC_OK;
}

std::size_t Transport::Impl::on_header(char* data, std::size_t, std::size_t size, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  Impl* self = exchange->owner;
  std::string_view line(data, size);
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  AnswerHead& head = exchange->head;
  // A proxy's answer to CONNECT comes before the server's.
  if (head.is_ended() && line.starts_with("HTTP/")) head = AnswerHead{};
  self->take_head_line(exchange, line, self->arrival_of(size));
  if (self->is_plain && line.empty() && head.is_ended() && !head.is_malformed() &&
      head.framing() == BodyFraming::kChunks) {
    self->takeable.push_back(exchange);
  }
  return size;
}

std::size_t Transport::Impl::on_body(char* data, std::size_t, std::size_t size, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  Impl* self = exchange->owner;
  const std::string_view bytes(data, size);
  // Where bodies may be taken, libcurl hands out the chunks as they came, so that the rest can be
  // read from the socket (CURLOPT_HTTP_TRANSFER_DECODING); as long as it reads them, it finds their
  // end and their faults itself.
  if (self->is_plain && exchange->head.framing() == BodyFraming::kChunks) {
    bool goes_on = true;
    const double time_s = self->arrival_of(size);
    (void)exchange->chunks.feed(bytes, [&](std::string_view piece) {
      goes_on = goes_on && self->pass_on(piece, exchange, time_s);
    });
    return goes_on ? size : 0;
  }
  return self->pass_on(bytes, exchange, self->arrival_of(size)) ? size : 0;
}

}  // namespace moe::client
