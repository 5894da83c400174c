#pragma once

// Sockets that are connected before they are needed, so that a request leaves when it should and
// not a handshake later. libcurl takes them in place of its own (transport.cpp).

#include <cstdint>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace moe::client {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;
  std::string text;  // numeric
};

// All addresses of a host, asked for once. Throws Error(kRuntime) when the name has none.
[[nodiscard]] std::vector<SocketAddress> resolve(const std::string& host, const std::string& port);

// Opened, not yet connected sockets live in `epoll` with the tag kTagBit | fd until they stand.
class Connections {
 public:
  static constexpr std::uint64_t kTagBit = std::uint64_t{1} << 40;

  Connections(std::vector<SocketAddress> addresses, int epoll);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  // Starts connecting so many more.
  void open(std::int64_t count);
  // An event of epoll for one of them.
  void on_ready(int socket);
  // A connected socket that the server has not closed since, or -1. The caller owns it.
  [[nodiscard]] int take();

  [[nodiscard]] std::int64_t num_ready() const { return static_cast<std::int64_t>(ready_.size()); }
  [[nodiscard]] std::int64_t num_pending() const { return num_pending_; }
  [[nodiscard]] std::int64_t num_failed() const { return num_failed_; }

 private:
  std::vector<SocketAddress> addresses_;
  int epoll_;
  std::vector<int> ready_;
  std::vector<bool> is_pending_;  // by descriptor
  std::int64_t num_pending_ = 0;
  std::int64_t num_failed_ = 0;
};

}  // namespace moe::client
