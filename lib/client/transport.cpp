#include "lib/client/transport.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <deque>
#include <utility>
#include <vector>

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/client/connections.hpp"
#include "lib/client/curl_setup.hpp"
#include "lib/client/receive_time.hpp"

namespace moe::client {
namespace {

// One pass takes up what is ready now; what comes in meanwhile waits for the next.
constexpr int kMaxReady = 4096;
// A burst of sends is cut into pieces, so that what arrives meanwhile is read.
constexpr int kMaxStarts = 32;

Failure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Failure::kNone;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Failure::kRefused;
    case CURLE_OPERATION_TIMEDOUT:
      return Failure::kTimeout;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return Failure::kTls;
    case CURLE_WRITE_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
      return Failure::kMalformed;
    default:
      return Failure::kReset;
  }
}

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

timespec to_timespec(double seconds) {
  const double clipped = std::clamp(seconds, 0.0, 3600.0);
  timespec time{};
  time.tv_sec = static_cast<time_t>(clipped);
  time.tv_nsec = static_cast<long>((clipped - std::floor(clipped)) * 1e9);
  return time;
}

}  // namespace

struct Transport::Exchange {
  Impl* owner = nullptr;
  CURL* easy = nullptr;
  ExchangeListener* listener = nullptr;
  std::string url;
  std::string body;
  HeaderList headers;
  bool is_running = false;
  bool is_sent = false;
  double last_bytes_s = 0.0;  // arrival
};

struct Transport::Impl {
  Impl(const Endpoint& endpoint, const TransportOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void set_up_multi();
  void resolve_once();
  std::unique_ptr<Exchange> make_exchange();
  void wait(double until_s);
  void read_ready(int count);
  void start_queued();
  void collect_ended();

  static int on_socket(CURL* easy, curl_socket_t fd, int what, void* self, void* known);
  static int on_timer(CURLM* multi, long timeout_ms, void* self);
  static curl_socket_t on_open(void* self, curlsocktype purpose, curl_sockaddr* address);
  static int on_option(void* self, curl_socket_t fd, curlsocktype purpose);
  static int on_close(void* self, curl_socket_t fd);
  static int on_request(void* exchange, char*, char*, int, int);
  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* exchange);
  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* exchange);

  Endpoint endpoint;
  TransportOptions options;
  HeaderList headers;
  HeaderList addresses;  // "host:port:address", so that libcurl asks no name server
  CURLM* multi = nullptr;
  int epoll = -1;
  std::unique_ptr<Connections> connections;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<Exchange*> idle;
  std::deque<Exchange*> queued;
  std::array<epoll_event, kMaxReady> ready{};
  ReceiveTimes receive_times;
  double curl_deadline_s = -1.0;  // below 0: none
  double last_wait_s = 0.0;       // when epoll last began to look
  double woke_s = 0.0;            // and when it came back
  bool was_full = false;          // and could not show everything
  double arrival_s = 0.0;         // of the bytes that libcurl is reading
  std::int64_t num_running = 0;
  std::int64_t num_sockets = 0;  // that libcurl holds
  std::int64_t num_taken = 0;    // sockets handed over connected, not yet seen by on_option
  LoopStats stats;
  std::function<void(double)> delay_sink;
};

Transport::Impl::Impl(const Endpoint& given, const TransportOptions& given_options)
    : endpoint(given), options(given_options), headers(request_headers(given, true)) {
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
    if (exchange->is_running) curl_multi_remove_handle(multi, exchange->easy);
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
  connections = std::make_unique<Connections>(std::move(found), epoll);
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
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, &Impl::on_option);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, this);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &Impl::on_close);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, this);
  curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, &Impl::on_request);
  curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Impl::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Impl::on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout_s * 1e3));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout_s * 1e3));
  return exchange;
}

int Transport::Impl::on_socket(CURL*, curl_socket_t fd, int what, void* context, void* known) {
  auto* self = static_cast<Impl*>(context);
  if (what == CURL_POLL_REMOVE) {
    (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, fd, nullptr);
    if (known != nullptr) curl_multi_assign(self->multi, fd, nullptr);
    return 0;
  }
  epoll_event event{};
  event.data.u64 = static_cast<std::uint64_t>(fd);
  event.events =
      ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0U) | ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0U);
  const int operation = known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(self->epoll, operation, fd, &event) != 0 && errno == EEXIST) {
    (void)epoll_ctl(self->epoll, EPOLL_CTL_MOD, fd, &event);
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
  auto* self = static_cast<Impl*>(context);
  int fd = self->connections->take();
  if (fd >= 0) {
    ++self->num_taken;
  } else {
    fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0) return CURL_SOCKET_BAD;
    (void)enable_receive_times(fd);
  }
  ++self->num_sockets;
  return fd;
}

int Transport::Impl::on_option(void* context, curl_socket_t, curlsocktype) {
  auto* self = static_cast<Impl*>(context);
  if (self->num_taken == 0) return CURL_SOCKOPT_OK;
  --self->num_taken;
  return CURL_SOCKOPT_ALREADY_CONNECTED;
}

int Transport::Impl::on_close(void* context, curl_socket_t fd) {
  --static_cast<Impl*>(context)->num_sockets;
  return close(fd);
}

int Transport::Impl::on_request(void* context, char*, char*, int, int) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->is_sent = true;
  exchange->listener->on_sent(monotonic_s());
  return CURL_PREREQFUNC_OK;
}

std::size_t Transport::Impl::on_header(char* data, std::size_t, std::size_t size, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  const std::string_view line(data, size);
  if (!line.starts_with("HTTP/")) return size;
  const std::size_t blank = line.find(' ');
  int status = 0;
  for (std::size_t i = blank; i != std::string_view::npos && i + 1 < line.size() && i < blank + 3;
       ++i) {
    const char digit = line[i + 1];
    if (digit < '0' || digit > '9') break;
    status = status * 10 + (digit - '0');
  }
  if (status / 100 != 1) {
    exchange->listener->on_status(status, exchange->owner->arrival_s);
  }
  return size;
}

std::size_t Transport::Impl::on_body(char* data, std::size_t, std::size_t size, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->owner->stats.num_bytes += static_cast<std::int64_t>(size);
  exchange->last_bytes_s = exchange->owner->arrival_s;
  const bool goes_on =
      exchange->listener->on_bytes(std::string_view(data, size), exchange->owner->arrival_s);
  return goes_on ? size : 0;
}

void Transport::Impl::wait(double until_s) {
  double deadline_s = until_s;
  if (curl_deadline_s >= 0.0) deadline_s = std::min(deadline_s, curl_deadline_s);
  const double begin_s = monotonic_s();
  const timespec timeout = to_timespec(deadline_s - begin_s);
  const int count = epoll_pwait2(epoll, ready.data(), kMaxReady, &timeout, nullptr);
  woke_s = monotonic_s();
  if (count > 0) read_ready(count);
  last_wait_s = begin_s;
}

void Transport::Impl::read_ready(int count) {
  receive_times.synchronise();
  // What the last look did not show came in after it, unless there was more than it could show.
  const double not_before_s = was_full ? 0.0 : last_wait_s;
  was_full = count == kMaxReady;
  int running = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    const int fd = static_cast<int>(event.data.u64 & 0xffffffffU);
    if ((event.data.u64 & Connections::kTagBit) != 0) {
      connections->on_ready(fd);
      continue;
    }
    int what = 0;
    if ((event.events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_IN | CURL_CSELECT_ERR;
    const double now_s = monotonic_s();
    arrival_s = now_s;
    if ((event.events & EPOLLIN) != 0) {
      arrival_s = receive_times.last_byte_s(fd, not_before_s, now_s);
      if (delay_sink) delay_sink(now_s - arrival_s);
      ++stats.num_reads;
    }
    curl_multi_socket_action(multi, fd, what, &running);
  }
  stats.has_kernel_times = receive_times.has_stamps();
}

void Transport::Impl::start_queued() {
  if (queued.empty()) return;
  std::int64_t num_ready = connections->num_ready();
  int num_started = 0;
  while (!queued.empty() && num_started < kMaxStarts) {
    Exchange* exchange = queued.front();
    queued.pop_front();
    if (exchange == nullptr) continue;
    // With a socket at hand libcurl need not search its own connections for a free one.
    curl_easy_setopt(exchange->easy, CURLOPT_FRESH_CONNECT, num_ready-- > 0 ? 1L : 0L);
    exchange->is_running = true;
    ++num_running;
    ++num_started;
    curl_multi_add_handle(multi, exchange->easy);
  }
  int running = 0;
  arrival_s = monotonic_s();
  curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

void Transport::Impl::collect_ended() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    CURL* easy = message->easy_handle;
    Exchange* exchange = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &exchange);
    curl_off_t connected_us = 0;
    long num_connects = 0;
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &num_connects);
    curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
    curl_multi_remove_handle(multi, easy);
    exchange->is_running = false;
    --num_running;
    ExchangeEnd end;
    end.failure = failure_of(code);
    // No connection came about: for a caller that is a refusal, only slower.
    if (code == CURLE_OPERATION_TIMEDOUT && !exchange->is_sent) end.failure = Failure::kRefused;
    if (code != CURLE_OK) end.error = printable(curl_easy_strerror(code));
    if (num_connects > 0) end.connect_s = static_cast<double>(connected_us) * 1e-6;
    ExchangeListener* listener = exchange->listener;
    idle.push_back(exchange);
    const bool is_whole = code == CURLE_OK && exchange->last_bytes_s > 0.0;
    listener->on_end(end, is_whole ? exchange->last_bytes_s : monotonic_s());
  }
}

Transport::Transport(const Endpoint& endpoint, const TransportOptions& options)
    : impl_(std::make_unique<Impl>(endpoint, options)) {}
Transport::~Transport() = default;

Transport::Exchange* Transport::prepare(const std::string& path, std::string body,
                                        const std::string& request_id, ExchangeListener* listener) {
  if (impl_->idle.empty()) {
    impl_->exchanges.push_back(impl_->make_exchange());
    impl_->idle.push_back(impl_->exchanges.back().get());
  }
  Exchange* exchange = impl_->idle.back();
  impl_->idle.pop_back();
  exchange->listener = listener;
  exchange->last_bytes_s = 0.0;
  exchange->is_sent = false;
  exchange->body = std::move(body);
  HeaderList headers = request_headers(impl_->endpoint, true, request_id);
  curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, headers.get());
  exchange->headers = std::move(headers);
  std::string url = impl_->endpoint.base_url + path;
  if (url != exchange->url) {
    exchange->url = std::move(url);
    curl_easy_setopt(exchange->easy, CURLOPT_URL, exchange->url.c_str());
  }
  curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(exchange->body.size()));
  curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDS, exchange->body.c_str());
  return exchange;
}

void Transport::start(Exchange* exchange) {
  impl_->queued.push_back(exchange);
}

void Transport::drop(Exchange* exchange) {
  if (exchange->is_running) {
    curl_multi_remove_handle(impl_->multi, exchange->easy);
    exchange->is_running = false;
    --impl_->num_running;
  }
  std::replace(impl_->queued.begin(), impl_->queued.end(), exchange,
               static_cast<Exchange*>(nullptr));
  impl_->idle.push_back(exchange);
}

void Transport::connect_ahead(std::int64_t count) {
  const std::int64_t there = impl_->connections->num_ready() + impl_->connections->num_pending();
  if (count > there) impl_->connections->open(count - there);
}

std::int64_t Transport::num_connecting() const {
  return impl_->connections->num_pending();
}

std::int64_t Transport::num_idle() const {
  return std::max<std::int64_t>(0, impl_->num_sockets - impl_->num_running);
}

void Transport::run_pass(double until_s) {
  const double begin_s = monotonic_s();
  impl_->start_queued();
  const double started_s = monotonic_s();
  impl_->wait(impl_->queued.empty() ? until_s : 0.0);
  if (impl_->curl_deadline_s >= 0.0 && monotonic_s() >= impl_->curl_deadline_s) {
    impl_->curl_deadline_s = -1.0;
    int running = 0;
    impl_->arrival_s = monotonic_s();
    curl_multi_socket_action(impl_->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  impl_->collect_ended();
  const double busy_s = (started_s - begin_s) + (monotonic_s() - impl_->woke_s);
  impl_->stats.longest_pass_s = std::max(impl_->stats.longest_pass_s, busy_s);
}

void Transport::sample_receive_delays(std::function<void(double delay_s)> sink) {
  impl_->delay_sink = std::move(sink);
}

const LoopStats& Transport::stats() const {
  return impl_->stats;
}
std::int64_t Transport::num_running() const {
  return impl_->num_running;
}

}  // namespace moe::client
