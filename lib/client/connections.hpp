#pragma once

// Sockets that stand before they are needed, so that a request leaves when it should and not a
// handshake later: connected ahead, or kept after an answer.

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

// All of them live in `epoll` with the tag kTagBit | fd: until they are connected, and then so that
// one that the server closes meanwhile is gone at once.
class Connections {
 public:
  static constexpr std::uint64_t kTagBit = std::uint64_t{1} << 40;

  struct Taken {
    int socket = -1;
    bool is_kept = false;  // has carried an answer: the server may be closing it just now
  };

  // Of the sockets that stand, `max_ready` at most are kept.
  Connections(std::vector<SocketAddress> addresses, int epoll, std::int64_t max_ready);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  // Starts connecting so many more.
  void open(std::int64_t count);
  // Takes over a socket of `epoll` on which an answer has ended.
  void keep(int socket);
  // An event of epoll for one of them.
  void on_ready(int socket);
  // A connected socket that the server has not closed since, the last that came first; -1: none.
  // The caller owns it; it is still in `epoll`.
  [[nodiscard]] Taken take();

  [[nodiscard]] std::int64_t num_ready() const { return static_cast<std::int64_t>(ready_.size()); }
  [[nodiscard]] std::int64_t num_pending() const { return num_pending_; }
  [[nodiscard]] std::int64_t num_failed() const { return num_failed_; }

 private:
  enum class State : std::uint8_t { kNone, kPending, kReady };

  [[nodiscard]] bool watch(int socket, int operation, std::uint32_t events) const;
  void add_ready(Taken ready);
  void on_connected(int socket);
  State& state_of(int socket);

  std::vector<SocketAddress> addresses_;
  int epoll_;
  std::int64_t max_ready_;
  std::vector<Taken> ready_;
  std::vector<State> states_;  // by descriptor
  std::int64_t num_pending_ = 0;
  std::int64_t num_failed_ = 0;
};

}  // namespace moe::client
