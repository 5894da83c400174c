// Answers in chunks, which Transport reads itself once libcurl has read the head.

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <unistd.h>

#include "lib/base/text.hpp"
#include "lib/client/transport_impl.hpp"

namespace moe::client {

bool Transport::Impl::pass_on(std::string_view piece, Exchange* exchange, double time_s) {
  stats.num_bytes += static_cast<std::int64_t>(piece.size());
  exchange->last_bytes_s = time_s;
  return exchange->listener->on_bytes(piece, time_s);
}

void Transport::Impl::take_bodies() {
  if (takeable.empty()) return;
  // What ended in the same read has nothing left to take.
  collect_ended();
  for (std::size_t i = 0; i < takeable.size(); ++i) {
    Exchange* exchange = takeable[i];
    const bool can_be = exchange->is_running && exchange->socket < 0 &&
                        exchange->head.is_takeable && !exchange->chunks.is_ended() &&
                        !exchange->chunks.is_malformed();
    if (can_be) take_over(exchange);
  }
  takeable.clear();
}

// All that libcurl has read it has passed on: of a plain answer it keeps nothing, so the next byte
// of the socket is the next of the body.
void Transport::Impl::take_over(Exchange* exchange) {
  curl_off_t num_sent = 0;
  curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &num_sent);
  if (num_sent != static_cast<curl_off_t>(exchange->body.size())) return;
  note_connecting(exchange);
  being_taken = exchange;
  // Of an answer under way it closes the connection, by on_close().
  curl_multi_remove_handle(multi, exchange->easy);
  being_taken = nullptr;
  const int socket = exchange->socket;
  if (socket < 0) {
    finish(exchange, {Failure::kReset, "libcurl kept the connection", 0.0}, monotonic_s());
    return;
  }
  const auto place = static_cast<std::size_t>(socket);
  if (by_socket.size() <= place) by_socket.resize(place * 2 + 1);
  by_socket[place] = exchange;
  ++num_taken;
  overdue_s = overdue_s < 0.0 ? exchange->deadline_s : std::min(overdue_s, exchange->deadline_s);
  if (!watch_taken(socket)) {
    fail_body(exchange, Failure::kReset, "the connection cannot be watched");
  }
}

// Told of what comes in, not of what is there: else each look would ask every socket that the one
// before has read whether there is more.
bool Transport::Impl::watch_taken(int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.u64 = kTakenBit | static_cast<std::uint64_t>(socket);
  return epoll_ctl(epoll, EPOLL_CTL_MOD, socket, &event) == 0;
}

int Transport::Impl::release(Exchange* exchange) {
  const int socket = exchange->socket;
  by_socket[static_cast<std::size_t>(socket)] = nullptr;
  exchange->socket = -1;
  --num_taken;
  return socket;
}

void Transport::Impl::read_taken(const epoll_event& event, double now_s) {
  const int socket = static_cast<int>(event.data.u64 & 0xffffffffU);
  const auto place = static_cast<std::size_t>(socket);
  Exchange* exchange = place < by_socket.size() ? by_socket[place] : nullptr;
  if (exchange == nullptr) return;
  const Received received = receive_times.take(socket, buffer, not_before_s, now_s);
  if (received.size < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    fail_body(exchange, Failure::kReset, std::generic_category().message(errno));
    return;
  }
  if (received.size == 0) {
    fail_body(exchange, Failure::kReset, "the connection was closed inside the body");
    return;
  }
  ++stats.num_reads;
  if (delay_sink) delay_sink(now_s - received.arrival_s);
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(received.size));
  bool goes_on = true;
  const std::size_t num_used = exchange->chunks.feed(bytes, [&](std::string_view piece) {
    goes_on = goes_on && pass_on(piece, exchange, received.arrival_s);
  });
  if (!goes_on) {
    fail_body(exchange, Failure::kMalformed, "the answer was given up");
  } else if (exchange->chunks.is_malformed()) {
    fail_body(exchange, Failure::kReset, "the body is not in chunks where one must begin or end");
  } else if (exchange->chunks.is_ended()) {
    end_body(exchange, num_used < bytes.size());
  } else if (bytes.size() == buffer.size() || (event.events & EPOLLRDHUP) != 0) {
    // There is more, or the end, of which it is told no second time unless it asks again.
    was_full = true;
    (void)watch_taken(socket);
  }
}

void Transport::Impl::end_body(Exchange* exchange, bool is_left_over) {
  const int socket = release(exchange);
  // What a server says without being asked is no answer to the next request.
  if (exchange->head.closes || is_left_over) {
    (void)close(socket);
  } else {
    connections->keep(socket);
  }
  finish(exchange, {Failure::kNone, "", exchange->connect_s},
         exchange->last_bytes_s > 0.0 ? exchange->last_bytes_s : monotonic_s());
}

void Transport::Impl::fail_body(Exchange* exchange, Failure failure, const std::string& error) {
  (void)close(release(exchange));
  finish(exchange, {failure, printable(error), exchange->connect_s}, monotonic_s());
}

void Transport::Impl::end_overdue() {
  if (overdue_s < 0.0) return;
  const double now_s = monotonic_s();
  if (now_s < overdue_s) return;
  overdue_s = -1.0;
  for (std::size_t place = 0; place < by_socket.size(); ++place) {
    Exchange* exchange = by_socket[place];
    if (exchange == nullptr) continue;
    const double deadline_s = exchange->deadline_s;
    if (deadline_s <= now_s) {
      fail_body(exchange, Failure::kTimeout, curl_easy_strerror(CURLE_OPERATION_TIMEDOUT));
    } else {
      overdue_s = overdue_s < 0.0 ? deadline_s : std::min(overdue_s, deadline_s);
    }
  }
}

}  // namespace moe::client
