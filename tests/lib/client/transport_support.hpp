#pragma once

// Exchanges against a server in the same thread, so that what has arrived when is known.

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/client/receive_time.hpp"
#include "lib/client/transport.hpp"

namespace moe::client {

inline constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

struct Heard final : ExchangeListener {
  void on_sent(double) override { ++num_sent; }
  void on_status(int value, double) override {
    status = value;
    if (on_head) std::exchange(on_head, nullptr)();
  }
  bool on_bytes(std::string_view bytes, double time_s) override {
    body.append(bytes);
    last_s = time_s;
    if (on_first) std::exchange(on_first, nullptr)();
    return body.find(stop_word) == std::string::npos;
  }
  void on_end(const ExchangeEnd& given, double) override {
    end = given;
    has_ended = true;
  }

  int num_sent = 0;
  int status = 0;
  std::string body;
  std::function<void()> on_head;
  std::function<void()> on_first;
  std::string stop_word = "give up";
  double last_s = 0.0;
  bool has_ended = false;
  ExchangeEnd end;
};

// Sockets of the server's side; no thread.
class Peer {
 public:
  Peer() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener_, 256) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no socket to listen on");
    }
    port_ = ntohs(address.sin_port);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    for (const int fd : sockets) (void)close(fd);
    (void)close(listener_);
  }

  [[nodiscard]] Endpoint endpoint() const {
    return parse_endpoint("http://127.0.0.1:" + std::to_string(port_));
  }
  // Takes in what has connected.
  void accept_all() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int one = 1;
      (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      sockets.push_back(fd);
    }
  }
  static void say(int fd, std::string_view bytes) {
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads and forgets; true when there was something.
  static bool has_heard(int fd) {
    char buffer[4096];
    return recv(fd, buffer, sizeof buffer, 0) > 0;
  }

  std::vector<int> sockets;

 private:
  int listener_ = -1;
  int port_ = 0;
};

// Passes until `is_done` holds; gives up after many.
template <typename Predicate>
bool run_until(Transport& transport, Predicate&& is_done) {
  for (int pass = 0; pass < 500; ++pass) {
    if (is_done()) return true;
    transport.run_pass(monotonic_s() + 0.01);
  }
  return is_done();
}

// Who speaks: libcurl; libcurl to the head of an answer; or this client, on a connection that stood
// ready.
enum class Way { kLibcurl, kTakenOver, kOwn };

// A connection that stands ready.
inline void connect_one(Transport& transport, Peer& peer) {
  const std::size_t num_before = peer.sockets.size();
  transport.connect_ahead(1, 1);
  run_until(transport, [&] {
    peer.accept_all();
    return peer.sockets.size() > num_before && transport.num_connecting() == 0;
  });
}

// One stream whose first event has come.
struct Stream {
  explicit Stream(Way way, double timeout_s = 600.0, std::string_view fields = {})
      : transport(peer.endpoint(), options_of(way, timeout_s)) {
    if (way == Way::kOwn) connect_one(transport, peer);
    exchange = transport.prepare("/v1/completions", "{}", "id", &heard);
    transport.start(exchange);
    run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == 1 && Peer::has_heard(peer.sockets[0]);
    });
    std::string head(kHead);
    head.insert(head.size() - 2, fields);
    Peer::say(peer.sockets.at(0), head + "4\r\none \r\n");
    run_until(transport, [&] { return heard.body == "one "; });
  }
  static TransportOptions options_of(Way way, double timeout_s) {
    TransportOptions options;
    options.takes_bodies = way != Way::kLibcurl;
    options.timeout_s = timeout_s;
    return options;
  }
  void say(std::string_view bytes) const { Peer::say(peer.sockets[0], bytes); }
  bool ends() {
    return run_until(transport, [&] { return heard.has_ended; });
  }

  Peer peer;
  Heard heard;
  Transport transport;
  Transport::Exchange* exchange = nullptr;
};

// A request that the server has heard.
struct Asked {
  Asked(Transport& transport, const Peer& peer, std::size_t socket) {
    transport.start(transport.prepare("/v1/completions", "{}", "id", &heard));
    is_heard = run_until(transport, [&] { return Peer::has_heard(peer.sockets.at(socket)); });
  }
  Heard heard;
  bool is_heard = false;
};

}  // namespace moe::client
