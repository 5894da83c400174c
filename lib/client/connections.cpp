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

Connections::Connections(std::vector<SocketAddress> addresses, int epoll)
    : addresses_(std::move(addresses)), epoll_(epoll) {}

Connections::~Connections() {
  for (const int socket : ready_) (void)close(socket);
  for (std::size_t fd = 0; fd < is_pending_.size(); ++fd) {
    if (is_pending_[fd]) (void)close(static_cast<int>(fd));
  }
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
    if (status == 0) {
      ready_.push_back(fd);
      continue;
    }
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.u64 = kTagBit | static_cast<std::uint64_t>(fd);
    if (errno != EINPROGRESS || epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
      (void)close(fd);
      ++num_failed_;
      continue;
    }
    if (is_pending_.size() <= static_cast<std::size_t>(fd)) {
      is_pending_.resize(static_cast<std::size_t>(fd) * 2 + 1);
    }
    is_pending_[static_cast<std::size_t>(fd)] = true;
    ++num_pending_;
  }
}

void Connections::on_ready(int socket) {
  const auto index = static_cast<std::size_t>(socket);
  if (index >= is_pending_.size() || !is_pending_[index]) return;
  is_pending_[index] = false;
  --num_pending_;
  (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) {
    ready_.push_back(socket);
  } else {
    (void)close(socket);
    ++num_failed_;
  }
}

int Connections::take() {
  while (!ready_.empty()) {
    const int socket = ready_.back();
    ready_.pop_back();
    char byte = 0;
    // Nothing to read and not closed: still as it was.
    if (recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
      return socket;
    }
    (void)close(socket);
  }
  return -1;
}

}  // namespace moe::client
