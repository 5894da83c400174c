#include "lib/client/connections.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/client/receive_time.hpp"

namespace moe::client {
namespace {

// Nothing to read and not closed: as an idle connection should be.
bool is_quiet(int socket) {
  char byte = 0;
  return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

}  // namespace

std::vector<SocketAddress> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  // "[::1]" of a URL is ::1 here.
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = is_bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    throw Error(ErrorCode::kRuntime, fmt::format("the server's name {} has no address: {}",
                                                 printable(name), gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    address.family = at->ai_family;
    address.length = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      address.text = text;
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

Connections::Connections(std::vector<SocketAddress> addresses, int epoll, std::int64_t max_ready)
    : addresses_(std::move(addresses)), epoll_(epoll), max_ready_(max_ready) {}

Connections::~Connections() {
  for (std::size_t fd = 0; fd < states_.size(); ++fd) {
    if (states_[fd] != State::kNone) (void)close(static_cast<int>(fd));
  }
}

Connections::State& Connections::state_of(int socket) {
  const auto place = static_cast<std::size_t>(socket);
  if (states_.size() <= place) states_.resize(place * 2 + 1, State::kNone);
  return states_[place];
}

bool Connections::watch(int socket, int operation, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = kTagBit | static_cast<std::uint64_t>(socket);
  return epoll_ctl(epoll_, operation, socket, &event) == 0;
}

void Connections::add_ready(Taken ready) {
  if (static_cast<std::int64_t>(ready_.size()) >= max_ready_) {
    // The one that has been idle for longest.
    state_of(ready_.front().socket) = State::kNone;
    (void)close(ready_.front().socket);
    ready_.erase(ready_.begin());
  }
  state_of(ready.socket) = State::kReady;
  ready_.push_back(ready);
}

void Connections::open(std::int64_t count) {
  if (addresses_.empty()) return;
  const SocketAddress& address = addresses_.front();
  for (std::int64_t i = 0; i < count; ++i) {
    const int fd = socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      ++num_failed_;
      return;
    }
    const int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)enable_receive_times(fd);
    const int status =
        connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length);
    const bool is_pending = status != 0 && errno == EINPROGRESS;
    if ((status != 0 && !is_pending) ||
        !watch(fd, EPOLL_CTL_ADD, is_pending ? EPOLLOUT : EPOLLIN)) {
      (void)close(fd);
      ++num_failed_;
    } else if (is_pending) {
      state_of(fd) = State::kPending;
      ++num_pending_;
    } else {
      add_ready({fd, false});
    }
  }
}

void Connections::keep(int socket) {
  if (watch(socket, EPOLL_CTL_MOD, EPOLLIN)) {
    add_ready({socket, true});
  } else {
    (void)close(socket);
  }
}

void Connections::on_connected(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  const bool has_failed =
      getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0;
  sockaddr_storage other{};
  length = sizeof other;
  // An event may be from before, when the descriptor was another socket's.
  if (!has_failed && getpeername(socket, reinterpret_cast<sockaddr*>(&other), &length) != 0) return;
  --num_pending_;
  state_of(socket) = State::kNone;
  if (!has_failed && watch(socket, EPOLL_CTL_MOD, EPOLLIN)) {
    add_ready({socket, false});
  } else {
    (void)close(socket);
    ++num_failed_;
  }
}

void Connections::on_ready(int socket) {
  State& state = state_of(socket);
  if (state == State::kPending) {
    on_connected(socket);
  } else if (state == State::kReady && !is_quiet(socket)) {
    state = State::kNone;
    std::erase_if(ready_, [&](const Taken& one) { return one.socket == socket; });
    (void)close(socket);
  }
}

Connections::Taken Connections::take() {
  while (!ready_.empty()) {
    const Taken taken = ready_.back();
    ready_.pop_back();
    state_of(taken.socket) = State::kNone;
    if (is_quiet(taken.socket)) return taken;
    (void)close(taken.socket);
  }
  return {};
}

}  // namespace moe::client
