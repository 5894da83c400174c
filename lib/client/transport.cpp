#include "lib/client/transport.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <unistd.h>

#include "lib/base/text.hpp"
#include "lib/client/transport_impl.hpp"

namespace moe::client {
namespace {

// A burst of sends is cut into pieces, so that what arrives meanwhile is read.
constexpr int kMaxStarts = 32;
// And so many sockets are read between two pieces, or before a send that has fallen due.
constexpr int kMinReads = 16;

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

timespec to_timespec(double seconds) {
  const double clipped = std::clamp(seconds, 0.0, 1e9);
  timespec time{};
  time.tv_sec = static_cast<time_t>(clipped);
  time.tv_nsec = static_cast<long>((clipped - std::floor(clipped)) * 1e9);
  return time;
}

}  // namespace

void Transport::Impl::wait(double until_s, double window_s) {
  double deadline_s = until_s;
  if (curl_deadline_s >= 0.0) deadline_s = std::min(deadline_s, curl_deadline_s);
  if (overdue_s >= 0.0) deadline_s = std::min(deadline_s, overdue_s);
  double begin_s = monotonic_s();
  if (woke_s > 0.0) stats.longest_pass_s = std::max(stats.longest_pass_s, begin_s - woke_s);
  if (window_s > 0.0 && receive_times.has_stamps() && begin_s < deadline_s) {
    stats.read_window_s = std::max(stats.read_window_s, window_s);
    const timespec end = to_timespec(std::min(begin_s + window_s, deadline_s));
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr);
    begin_s = monotonic_s();
  }
  const timespec timeout = to_timespec(deadline_s - begin_s);
  num_ready = std::max(0, epoll_pwait2(epoll, ready.data(), kMaxReady, &timeout, nullptr));
  next_ready = 0;
  woke_s = monotonic_s();
  if (num_ready > 0) {
    receive_times.synchronise();
    // What the last look did not show came in after it, unless there was more than it could show.
    not_before_s = was_full ? 0.0 : last_wait_s;
    was_full = num_ready == kMaxReady;  // read_taken() says so too
  }
  last_wait_s = begin_s;
}

void Transport::Impl::read_ready(double until_s) {
  is_cut = false;
  for (int num_read = 0; next_ready < num_ready; ++num_read) {
    const double now_s = monotonic_s();
    if ((is_cut || now_s >= until_s) && num_read >= kMinReads) break;
    read_one(ready[static_cast<std::size_t>(next_ready++)], now_s);
  }
  stats.has_kernel_times = receive_times.has_stamps();
}

void Transport::Impl::read_one(const epoll_event& event, double now_s) {
  const int fd = static_cast<int>(event.data.u64 & 0xffffffffU);
  if ((event.data.u64 & kTakenBit) != 0) {
    read_taken(event, now_s);
    return;
  }
  if ((event.data.u64 & Connections::kTagBit) != 0) {
    connections->on_ready(fd);
    return;
  }
  int what = 0;
  if ((event.events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
  if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
  if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_IN | CURL_CSELECT_ERR;
  num_dated = 0;
  if ((event.events & EPOLLIN) != 0) {
    const Received received = receive_times.last_byte(fd, not_before_s, now_s);
    arrival_s = received.arrival_s;
    num_dated = received.size;
    if (delay_sink) delay_sink(now_s - arrival_s);
    ++stats.num_reads;
  }
  let_curl_act(fd, what);
}

void Transport::Impl::let_curl_act(curl_socket_t socket, int what) {
  int running = 0;
  curl_multi_socket_action(multi, socket, what, &running);
  take_bodies();
}

void Transport::Impl::start_queued() {
  std::int64_t num_standing = connections->num_ready();
  int num_started = 0;
  bool has_handed = false;
  while (!queued.empty() && num_started < kMaxStarts) {
    Exchange* exchange = queued.front();
    queued.pop_front();
    if (exchange == nullptr) continue;
    if (!exchange->is_second) exchange->deadline_s = monotonic_s() + options.timeout_s;
    exchange->is_running = true;
    exchange->stood = {};
    exchange->num_sent = 0;
    exchange->head = AnswerHead{};
    exchange->has_answer = false;
    exchange->partial_line.clear();
    exchange->num_head_bytes = 0;
    exchange->chunks = ChunkDecoder{};
    ++num_running;
    ++num_started;
    if (send_here(exchange)) continue;
    hand_to_curl(exchange, exchange->is_second || (!is_plain && num_standing-- > 0));
    has_handed = true;
  }
  if (has_handed) run_timers();
}

void Transport::Impl::run_timers() {
  num_dated = 0;
  let_curl_act(CURL_SOCKET_TIMEOUT, 0);
}

void Transport::Impl::collect_ended() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    CURL* easy = message->easy_handle;
    Exchange* exchange = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &exchange);
    note_connecting(exchange);
    curl_multi_remove_handle(multi, easy);
    on_curl_end(exchange, code);
  }
}

void Transport::Impl::note_connecting(Exchange* exchange) {
  curl_off_t connected_us = 0;
  long num_connects = 0;
  curl_easy_getinfo(exchange->easy, CURLINFO_NUM_CONNECTS, &num_connects);
  curl_easy_getinfo(exchange->easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
  // A socket that stood ready is a new connection for libcurl alone.
  const bool has_connected = num_connects > 0 && exchange->stood.socket < 0;
  exchange->connect_s = has_connected ? static_cast<double>(connected_us) * 1e-6 : 0.0;
}

void Transport::Impl::on_curl_end(Exchange* exchange, CURLcode code) {
  ExchangeEnd end;
  end.failure = failure_of(code);
  // No connection came about: for a caller that is a refusal, only slower.
  if (code == CURLE_OPERATION_TIMEDOUT && !exchange->is_sent) end.failure = Failure::kRefused;
  if (code != CURLE_OK) end.error = printable(curl_easy_strerror(code));
  end.connect_s = exchange->connect_s;
  const bool is_whole = code == CURLE_OK && exchange->last_bytes_s > 0.0;
  finish(exchange, end, is_whole ? exchange->last_bytes_s : monotonic_s());
}

void Transport::Impl::finish(Exchange* exchange, const ExchangeEnd& end, double time_s) {
  exchange->is_running = false;
  --num_running;
  idle.push_back(exchange);
  exchange->listener->on_end(end, time_s);
}

Transport::Transport(const Endpoint& endpoint, const TransportOptions& options)
    : impl_(std::make_unique<Impl>(endpoint, options)) {}
Transport::~Transport() = default;

Transport::Exchange* Transport::prepare(const std::string& path, std::string_view body,
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
  exchange->is_second = false;
  exchange->path = path;
  exchange->request_id = request_id;
  exchange->request.clear();
  if (impl_->is_plain) exchange->request = impl_->request_head(*exchange, body.size());
  exchange->head_bytes = exchange->request.size();
  exchange->request += body;
  return exchange;
}

void Transport::start(Exchange* exchange) {
  impl_->queued.push_back(exchange);
}

void Transport::drop(Exchange* exchange) {
  if (exchange->is_running) {
    if (exchange->socket >= 0) {
      (void)close(impl_->release(exchange));
    } else {
      curl_multi_remove_handle(impl_->multi, exchange->easy);
    }
    exchange->is_running = false;
    --impl_->num_running;
  }
  std::replace(impl_->queued.begin(), impl_->queued.end(), exchange,
               static_cast<Exchange*>(nullptr));
  impl_->idle.push_back(exchange);
}

void Transport::connect_ahead(std::int64_t count, std::int64_t at_most) {
  const std::int64_t there = impl_->connections->num_ready() + impl_->connections->num_pending();
  if (count > there) impl_->connections->open(std::min(count - there, at_most));
}

std::int64_t Transport::num_connecting() const {
  return impl_->connections->num_pending();
}

std::int64_t Transport::num_idle() const {
  const std::int64_t num_in_use = impl_->num_running - impl_->num_taken;
  return std::max<std::int64_t>(0, impl_->num_sockets - num_in_use);
}

void Transport::run_pass(double until_s, double window_s) {
  impl_->start_queued();
  if (impl_->next_ready == impl_->num_ready) {
    impl_->wait(impl_->queued.empty() ? until_s : 0.0, window_s);
  }
  impl_->read_ready(until_s);
  if (impl_->curl_deadline_s >= 0.0 && monotonic_s() >= impl_->curl_deadline_s) {
    impl_->curl_deadline_s = -1.0;
    impl_->run_timers();
  }
  impl_->collect_ended();
  impl_->end_overdue();
}

void Transport::cut_pass() {
  impl_->is_cut = true;
}

void Transport::begin_measuring(std::function<void(double delay_s)> delay_sink) {
  impl_->delay_sink = std::move(delay_sink);
  impl_->stats = LoopStats{};
  impl_->woke_s = 0.0;
}

const LoopStats& Transport::stats() const {
  return impl_->stats;
}
std::int64_t Transport::num_running() const {
  return impl_->num_running;
}

}  // namespace moe::client
