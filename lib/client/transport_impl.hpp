#pragma once

// Inside of Transport: private to its sources. libcurl connects, speaks TLS, goes through proxies,
// sends requests, and reads heads and whatever is not plain. Over plain HTTP it is done with an
// answer in chunks once it has read the head: an answer has an event a token, and libcurl spends
// some 10 us on each (one more system call, a tree of time-outs, its states). The handle leaves the
// multi, and the socket, which libcurl would close, is taken out of its hands by the callback for
// closing. It is read here to the end of the body, kept for another request (Connections), and
// handed to libcurl again as a connected one: keep-alive holds, and libcurl sees requests and
// heads.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <curl/curl.h>
#include <sys/epoll.h>

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

// What a head says about the body behind it.
struct AnswerHead {
  int status = 0;
  bool is_http_11 = false;
  bool is_chunked = false;
  bool has_other_coding = false;
  bool closes = false;       // the connection ends with the answer
  bool is_takeable = false;  // chunks and nothing else, from the end of the head on
};

struct Transport::Exchange {
  Impl* owner = nullptr;
  CURL* easy = nullptr;
  ExchangeListener* listener = nullptr;
  std::string url;
  std::string body;
  HeaderList headers;
  bool is_running = false;
  bool is_sent = false;
  bool has_head = false;     // a line of it
  bool is_second = false;    // goes out again, since a kept connection was dead
  Connections::Taken stood;  // the socket that stood ready for it
  int stand_in = -1;         // what libcurl was given for it
  AnswerHead head;
  ChunkDecoder chunks;
  int socket = -1;            // once its body is read here
  double deadline_s = 0.0;    // of the whole exchange
  double connect_s = 0.0;     // 0 when a connection was there
  double last_bytes_s = 0.0;  // arrival
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
  // Whether it was sent on a kept connection that the server had closed.
  [[nodiscard]] static bool has_met_dead_connection(const Exchange& exchange, CURLcode code);
  void finish(Exchange* exchange, const ExchangeEnd& end, double time_s);

  // transport_bodies.cpp
  void take_bodies();
  void take_over(Exchange* exchange);
  bool watch_taken(int socket);
  void read_taken(const epoll_event& event, double now_s);
  void end_body(Exchange* exchange, bool is_left_over);
  void fail_body(Exchange* exchange, Failure failure, const std::string& error);
  void end_overdue();
  // The socket, which then is nobody's.
  int release(Exchange* exchange);
  // libcurl may read more than was there when its arrival was asked for: that is dated now, a
  // little late, and never before it came.
  [[nodiscard]] double arrival_of(std::size_t size) {
    num_dated -= static_cast<std::int64_t>(size);
    return num_dated >= 0 ? arrival_s : monotonic_s();
  }
  // Bytes of the body. False when the listener gives the exchange up.
  bool pass_on(std::string_view piece, Exchange* exchange, double time_s);

  // A socket for libcurl to connect in place of one that has been in use, or below 0.
  int open_stand_in(int family, int kept);
  // What it stands for, which then is the caller's; -1: nothing.
  int take_stood_for(int stand_in);
  bool put_in_place(int stand_in);

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
  std::vector<int> stands_for;   // kept sockets by that of their stand-in
  bool takes_bodies = false;
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
