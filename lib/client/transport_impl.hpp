#pragma once

// Inside of Transport: private to its sources. libcurl connects, speaks TLS and goes through
// proxies, and then it also sends and reads. Over plain HTTP it costs more than all else the client
// does: some 10 us an event (one more system call, a tree of time-outs, its states), of which an
// answer has one a token, and some 100 us a request. So there
//   - it is done with an answer in chunks once it has read the head: the handle leaves the multi,
//     and the socket, which libcurl would close, is taken out of its hands by the callback for
//     closing; it is read here to the end of the body and kept for another request (Connections);
//   - a request for which a socket stands ready goes out and comes in here altogether
//     (transport_requests.cpp). libcurl could not take a kept socket: 7.87 to 8.0 connect even one
//     that they are told is connected.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <curl/curl.h>
#include <sys/epoll.h>

#include "lib/client/answer_head.hpp"
#include "lib/client/chunk_decoder.hpp"
#include "lib/client/connections.hpp"
#include "lib/client/curl_setup.hpp"
#include "lib/client/receive_time.hpp"
#include "lib/client/transport.hpp"

namespace moe::client {

// One look takes up what is ready now; what comes in meanwhile waits for the next.
inline constexpr int kMaxReady = 4096;
// In epoll: a socket that is read here and not by libcurl.
inline constexpr std::uint64_t kTakenBit = Connections::kTagBit << 1;

// No answer has a longer head.
inline constexpr std::size_t kMaxHeadBytes = std::size_t{256} << 10;

struct Transport::Exchange {
  Impl* owner = nullptr;
  CURL* easy = nullptr;
  ExchangeListener* listener = nullptr;
  std::string path;
  std::string request_id;
  std::string request;         // head and body, as it goes over a socket of our own
  std::size_t head_bytes = 0;  // of the request
  std::string url;             // for libcurl
  HeaderList headers;
  bool is_running = false;
  bool is_sent = false;
  bool is_second = false;    // goes out again, since a kept connection was dead
  Connections::Taken stood;  // the socket that stood ready for it
  std::size_t num_sent = 0;  // bytes, on a socket of our own
  AnswerHead head;
  bool has_answer = false;   // a byte of it, on a socket of our own
  std::string partial_line;  // of the head
  std::size_t num_head_bytes = 0;
  ChunkDecoder chunks;
  std::uint64_t num_left = 0;  // of a body with a length
  int socket = -1;             // while its answer is read here
  double deadline_s = 0.0;     // of the whole exchange
  double connect_s = 0.0;      // 0 when a connection was there
  double last_bytes_s = 0.0;   // arrival
};

struct Transport::Impl {
  Impl(const Endpoint& endpoint, const TransportOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  // transport_setup.cpp
  void set_up_multi();
  void resolve_once();
  std::unique_ptr<Exchange> make_exchange();

  // transport.cpp
  void wait(double until_s, double window_s);
  void read_ready(double until_s);
  void read_one(const epoll_event& event, double now_s);
  // libcurl reads, writes or times out; then what it has read a head of may be taken over.
  void let_curl_act(curl_socket_t socket, int what);
  void start_queued();
  void run_timers();
  void collect_ended();
  void note_connecting(Exchange* exchange);
  void on_curl_end(Exchange* exchange, CURLcode code);
  void finish(Exchange* exchange, const ExchangeEnd& end, double time_s);

  // transport_bodies.cpp
  void take_bodies();
  void take_over(Exchange* exchange);
  // Its answer is read from this socket from now on.
  void adopt(Exchange* exchange, int socket);
  bool watch_taken(const Exchange& exchange);
  void read_taken(const epoll_event& event, double now_s);
  // False when the exchange has ended.
  bool take_bytes(Exchange* exchange, std::string_view bytes, double time_s);
  bool take_body(Exchange* exchange, std::string_view bytes, double time_s);
  void end_body(Exchange* exchange, bool is_left_over);
  void fail_body(Exchange* exchange, Failure failure, const std::string& error);
  void end_overdue();
  // The socket, which then is nobody's.
  int release(Exchange* exchange);

  // transport_requests.cpp
  void set_up_requests();
  [[nodiscard]] std::string request_head(const Exchange& exchange, std::size_t body_bytes) const;
  // False when no socket stands ready.
  bool send_here(Exchange* exchange);
  void send_rest(Exchange* exchange);
  // `is_fresh`: it need not search its own connections for a free one.
  void hand_to_curl(Exchange* exchange, bool is_fresh);
  std::size_t take_head(Exchange* exchange, std::string_view bytes, double time_s);
  void take_head_line(Exchange* exchange, std::string_view line, double time_s);
  void on_closed(Exchange* exchange);
  // On a kept connection that was dead the request goes out again, else this is its end.
  void on_broken(Exchange* exchange, const std::string& error);

  // libcurl may read more than was there when its arrival was asked for: that is dated now, a
  // little late, and never before it came.
  [[nodiscard]] double arrival_of(std::size_t size) {
    num_dated -= static_cast<std::int64_t>(size);
    return num_dated >= 0 ? arrival_s : monotonic_s();
  }
  // Bytes of the body. False when the listener gives the exchange up.
  bool pass_on(std::string_view piece, Exchange* exchange, double time_s);

  static int on_socket(CURL* easy, curl_socket_t fd, int what, void* self, void* known);
  static int on_timer(CURLM* multi, long timeout_ms, void* self);
  static curl_socket_t on_open(void* exchange, curlsocktype purpose, curl_sockaddr* address);
  static int on_option(void* exchange, curl_socket_t fd, curlsocktype purpose);
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
  int num_ready = 0;
  int next_ready = 0;   // those before it have been read
  bool is_cut = false;  // the pass under way
  ReceiveTimes receive_times;
  double curl_deadline_s = -1.0;  // below 0: none
  double last_wait_s = 0.0;       // when epoll last began to look
  double not_before_s = 0.0;      // what is ready came in after this
  double woke_s = 0.0;            // when epoll came back
  bool was_full = false;          // and not everything that is there is read after it
  double arrival_s = 0.0;         // of the bytes that are being read
  std::int64_t num_dated = 0;     // so many of them
  std::int64_t num_running = 0;
  std::int64_t num_sockets = 0;  // that libcurl holds
  bool is_plain = false;       // HTTP without TLS, proxy and a name to translate: much is done here
  std::string request_target;  // before the path
  std::string request_fields;  // the same in each head
  std::vector<Exchange*> takeable;  // something of them was just read
  Exchange* being_taken = nullptr;
  std::int64_t num_taken = 0;
  std::vector<Exchange*> by_socket;  // those that are read here
  double overdue_s = -1.0;           // none of them is overdue before; below 0: there is none
  std::array<char, 16384> buffer{};
  LoopStats stats;
  std::function<void(double)> delay_sink;
};

}  // namespace moe::client
