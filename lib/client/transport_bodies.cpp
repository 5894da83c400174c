// Answers that Transport reads itself: whole ones of its own requests, and the chunks behind a head
// that libcurl has read.

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
                        !exchange->chunks.is_ended() && !exchange->chunks.is_malformed();
    if (can_be) take_over(exchange);
  }
  takeable.clear();
}

// All that libcurl has read it has passed on: of a plain answer it keeps nothing, so the next byte
// of the socket is the next of the body.
void Transport::Impl::take_over(Exchange* exchange) {
  curl_off_t num_sent = 0;
  curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &num_sent);
  const std::size_t body_bytes = exchange->request.size() - exchange->head_bytes;
  if (num_sent != static_cast<curl_off_t>(body_bytes)) return;
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
  exchange->num_sent = exchange->request.size();
  adopt(exchange, socket);
  if (!watch_taken(*exchange)) {
    fail_body(exchange, Failure::kReset, "the connection cannot be watched");
  }
}

void Transport::Impl::adopt(Exchange* exchange, int socket) {
  const auto place = static_cast<std::size_t>(socket);
  if (by_socket.size() <= place) by_socket.resize(place * 2 + 1);
  by_socket[place] = exchange;
  exchange->socket = socket;
  ++num_taken;
  overdue_s = overdue_s < 0.0 ? exchange->deadline_s : std::min(overdue_s, exchange->deadline_s);
}

// Told of what comes in, not of what is there: else each look would ask every socket that the one
// before has read whether there is more.
bool Transport::Impl::watch_taken(const Exchange& exchange) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (exchange.num_sent < exchange.request.size()) event.events |= EPOLLOUT;
  event.data.u64 = kTakenBit | static_cast<std::uint64_t>(exchange.socket);
  return epoll_ctl(epoll, EPOLL_CTL_MOD, exchange.socket, &event) == 0;
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
  if ((event.events & EPOLLOUT) != 0 && exchange->num_sent < exchange->request.size()) {
    send_rest(exchange);
    if (exchange->socket != socket) return;
  }
  const Received received = receive_times.take(socket, buffer, not_before_s, now_s);
  if (received.size < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    on_broken(exchange, std::generic_category().message(errno));
    return;
  }
  if (received.size == 0) {
    on_closed(exchange);
    return;
  }
  ++stats.num_reads;
  if (delay_sink) delay_sink(now_s - received.arrival_s);
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(received.size));
  exchange->has_answer = true;
  if (!take_bytes(exchange, bytes, received.arrival_s)) return;
  if (bytes.size() == buffer.size() || (event.events & EPOLLRDHUP) != 0) {
    // There is more, or the end, of which it is told no second time unless it asks again.
    was_full = true;
    (void)watch_taken(*exchange);
  }
}

bool Transport::Impl::take_bytes(Exchange* exchange, std::string_view bytes, double time_s) {
  const AnswerHead& head = exchange->head;
  if (!head.is_ended()) {
    bytes.remove_prefix(take_head(exchange, bytes, time_s));
    if (head.is_malformed() || exchange->num_head_bytes > kMaxHeadBytes) {
      fail_body(exchange, Failure::kMalformed, "the head of the answer is not one of HTTP/1");
      return false;
    }
    if (!head.is_ended()) return true;
    exchange->num_left = head.content_length();
  }
  return take_body(exchange, bytes, time_s);
}

bool Transport::Impl::take_body(Exchange* exchange, std::string_view bytes, double time_s) {
  const BodyFraming framing = exchange->head.framing();
  bool goes_on = true;
  std::size_t num_used = 0;
  if (framing == BodyFraming::kChunks) {
    num_used = exchange->chunks.feed(bytes, [&](std::string_view piece) {
      goes_on = goes_on && pass_on(piece, exchange, time_s);
    });
  } else if (framing != BodyFraming::kEmpty) {
    num_used = bytes.size();
    if (framing == BodyFraming::kLength && exchange->num_left < num_used) {
      num_used = static_cast<std::size_t>(exchange->num_left);
    }
    if (num_used > 0) goes_on = pass_on(bytes.substr(0, num_used), exchange, time_s);
    if (framing == BodyFraming::kLength) exchange->num_left -= num_used;
  }
  if (!goes_on) {
    fail_body(exchange, Failure::kMalformed, "the answer was given up");
    return false;
  }
  if (exchange->chunks.is_malformed()) {
    fail_body(exchange, Failure::kReset, "the body is not in chunks where one must begin or end");
    return false;
  }
  const bool is_ended = exchange->chunks.is_ended() || framing == BodyFraming::kEmpty ||
                        (framing == BodyFraming::kLength && exchange->num_left == 0);
  if (is_ended) end_body(exchange, num_used < bytes.size());
  return !is_ended;
}

void Transport::Impl::end_body(Exchange* exchange, bool is_left_over) {
  const int socket = release(exchange);
  // What a server says without being asked is no answer to the next request.
  const bool is_unsent = exchange->num_sent < exchange->request.size();
  if (exchange->head.closes() || is_left_over || is_unsent) {
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
