// How Transport sets libcurl up, and what libcurl calls.

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
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

// Letters of both cases are one in the names and words of a head; `word` is in lower case.
bool starts_with_word(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char byte = text[i];
    const char lower = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
    if (lower != word[i]) return false;
  }
  return true;
}

bool is_field(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' && starts_with_word(line, name);
}

// In the list that a field holds.
bool has_word(std::string_view line, std::string_view word) {
  line.remove_prefix(line.find(':') + 1);
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t,");
    if (begin == std::string_view::npos) return false;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t,;"), line.size());
    if (end == word.size() && starts_with_word(line, word)) return true;
    line.remove_prefix(end);
    if (line.starts_with(';')) line.remove_prefix(std::min(line.find(','), line.size()));
  }
  return false;
}

// Of "HTTP/1.1 200 OK".
int status_of(std::string_view line) {
  const std::size_t blank = line.find(' ');
  int status = 0;
  for (std::size_t i = blank; i != std::string_view::npos && i + 1 < line.size() && i < blank + 3;
       ++i) {
    const char digit = line[i + 1];
    if (digit < '0' || digit > '9') break;
    status = status * 10 + (digit - '0');
  }
  return status;
}

}  // namespace

Transport::Impl::Impl(const Endpoint& given, const TransportOptions& given_options)
    : endpoint(given), options(given_options), headers(request_headers(given, true)) {
  takes_bodies = options.takes_bodies && !endpoint.is_tls && endpoint.proxy.empty();
  epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) throw Error(ErrorCode::kRuntime, "epoll_create1 failed");
  try {
    set_up_multi();
    resolve_once();
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
  if (takes_bodies) curl_easy_setopt(easy, CURLOPT_HTTP_TRANSFER_DECODING, 0L);
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
  exchange->stood = exchange->is_second ? Connections::Taken{} : self->connections->take();
  int fd = exchange->stood.socket;
  if (exchange->stood.is_kept) {
    fd = self->open_stand_in(address->family, fd);
    exchange->stand_in = fd;
  } else if (fd < 0) {
    fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0) (void)enable_receive_times(fd);
  }
  if (fd < 0) return CURL_SOCKET_BAD;
  ++self->num_sockets;
  return fd;
}

// libcurl 7.87 to 8.0 connect even a socket that they are told is connected. Right after it was
// connected ahead Linux says yes to that once more; of one that has been in use it makes an error.
// So for a kept connection libcurl gets a socket for datagrams, which "connects" at once, and
// beneath it the connection before anything is sent (on_request).
int Transport::Impl::open_stand_in(int family, int kept) {
  const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    (void)close(kept);
    return fd;
  }
  const auto place = static_cast<std::size_t>(fd);
  if (stands_for.size() <= place) stands_for.resize(place * 2 + 1, -1);
  stands_for[place] = kept;
  return fd;
}

int Transport::Impl::take_stood_for(int stand_in) {
  const auto place = static_cast<std::size_t>(stand_in);
  return place < stands_for.size() ? std::exchange(stands_for[place], -1) : -1;
}

bool Transport::Impl::put_in_place(int stand_in) {
  const int kept = take_stood_for(stand_in);
  if (kept < 0) return true;
  (void)epoll_ctl(epoll, EPOLL_CTL_DEL, kept, nullptr);
  const bool is_done = dup3(kept, stand_in, O_CLOEXEC) == stand_in;
  (void)close(kept);
  return is_done;
}

int Transport::Impl::on_option(void* context, curl_socket_t, curlsocktype) {
  const Connections::Taken& stood = static_cast<Exchange*>(context)->stood;
  return stood.socket >= 0 && !stood.is_kept ? CURL_SOCKOPT_ALREADY_CONNECTED : CURL_SOCKOPT_OK;
}

int Transport::Impl::on_close(void* context, curl_socket_t fd) {
  auto* self = static_cast<Impl*>(context);
  --self->num_sockets;
  if (const int kept = self->take_stood_for(fd); kept >= 0) (void)close(kept);
  if (self->being_taken == nullptr) return close(fd);
  self->being_taken->socket = fd;
  self->being_taken = nullptr;
  return 0;
}

int Transport::Impl::on_request(void* context, char*, char*, int, int) {
  auto* exchange = static_cast<Exchange*>(context);
  if (exchange->stand_in >= 0 && !exchange->owner->put_in_place(exchange->stand_in)) {
    return CURL_PREREQFUNC_ABORT;
  }
  exchange->is_sent = true;
  exchange->listener->on_sent(monotonic_s());
  return CURL_PREREQFUNC_OK;
}

std::size_t Transport::Impl::on_header(char* data, std::size_t, std::size_t size, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  Impl* self = exchange->owner;
  std::string_view line(data, size);
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  const double time_s = self->arrival_of(size);
  AnswerHead& head = exchange->head;
  exchange->has_head = true;
  if (line.starts_with("HTTP/")) {
    head = AnswerHead{};
    head.is_http_11 = line.starts_with("HTTP/1.1");
    head.status = status_of(line);
    if (head.status / 100 != 1) exchange->listener->on_status(head.status, time_s);
  } else if (line.empty()) {
    head.is_takeable = self->takes_bodies && head.is_http_11 && head.is_chunked &&
                       !head.has_other_coding && head.status / 100 == 2;
    if (head.is_takeable) self->takeable.push_back(exchange);
  } else if (is_field(line, "transfer-encoding")) {
    head.is_chunked = has_word(line, "chunked");
    head.has_other_coding = line.find(',') != std::string_view::npos;
  } else if (is_field(line, "connection")) {
    head.closes = head.closes || has_word(line, "close");
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
  if (self->takes_bodies && exchange->head.is_chunked) {
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
