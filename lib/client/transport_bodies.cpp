// Chunks that Transport reads itself while libcurl pauses.

#include <cerrno>

#include <sys/socket.h>

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
                        exchange->head.is_takeable && exchange->chunks.is_at_size();
    if (can_be) take_over(exchange);
  }
  takeable.clear();
}

// All that libcurl has read it has passed on: of a plain answer it keeps nothing, so the next byte
// of the socket is the first of the next chunk, for libcurl too.
void Transport::Impl::take_over(Exchange* exchange) {
  curl_off_t num_sent = 0;
  curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &num_sent);
  if (num_sent != static_cast<curl_off_t>(exchange->body.size())) return;
  being_taken = exchange;
  // Both ways: after a pause of one way libcurl looks at the socket once more, and would read it.
  const CURLcode code = curl_easy_pause(exchange->easy, CURLPAUSE_ALL);
  being_taken = nullptr;
  const int socket = exchange->socket;
  if (code != CURLE_OK || socket < 0) {
    exchange->socket = -1;
    exchange->head.is_takeable = false;
    (void)curl_easy_pause(exchange->easy, CURLPAUSE_CONT);
    return;
  }
  const auto place = static_cast<std::size_t>(socket);
  if (by_socket.size() <= place) by_socket.resize(place * 2 + 1);
  by_socket[place] = exchange;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTakenBit | static_cast<std::uint64_t>(socket);
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, socket, &event) != 0) give_back(exchange);
}

void Transport::Impl::read_taken(int socket, double now_s) {
  const auto place = static_cast<std::size_t>(socket);
  Exchange* exchange = place < by_socket.size() ? by_socket[place] : nullptr;
  if (exchange == nullptr) return;
  const Received received = receive_times.peek(socket, buffer, not_before_s, now_s);
  if (received.size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received.size <= 0) {
    give_back(exchange);
    return;
  }
  ++stats.num_reads;
  if (delay_sink) delay_sink(now_s - received.arrival_s);
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(received.size));
  bool goes_on = true;
  const std::size_t num_taken = exchange->chunks.feed_chunks(bytes, [&](std::string_view piece) {
    goes_on = goes_on && pass_on(piece, exchange, received.arrival_s);
  });
  // With MSG_TRUNC they are thrown away, and nothing is written to the buffer.
  if (num_taken > 0) (void)recv(socket, buffer.data(), num_taken, MSG_TRUNC | MSG_DONTWAIT);
  if (!goes_on) {
    curl_multi_remove_handle(multi, exchange->easy);
    forget_taken(socket);
    finish(exchange, {Failure::kMalformed, "the answer was given up", 0.0}, now_s);
  } else if (num_taken < bytes.size()) {
    give_back(exchange);
  }
}

void Transport::Impl::give_back(Exchange* exchange) {
  const int socket = exchange->socket;
  forget_taken(socket);
  // The callback for sockets puts it back under libcurl's name.
  (void)curl_easy_pause(exchange->easy, CURLPAUSE_CONT);
  num_dated = 0;
  let_curl_act(socket, CURL_CSELECT_IN);
}

void Transport::Impl::forget_taken(int socket) {
  const auto place = static_cast<std::size_t>(socket);
  if (socket < 0 || place >= by_socket.size() || by_socket[place] == nullptr) return;
  by_socket[place]->socket = -1;
  by_socket[place] = nullptr;
}

}  // namespace moe::client
