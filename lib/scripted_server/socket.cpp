#include "lib/scripted_server/socket.hpp"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::scripted_server {
namespace {

constexpr int kBacklog = 4096;

}  // namespace

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Descriptor listen_on(const std::string& host, std::uint16_t& port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("expected an IPv4 address to listen on, found \"{}\"", printable(host)));
  }
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Sockets take addresses through a pointer to their general form.
  auto* general = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (!listener.is_open() || ::bind(listener.get(), general, size) != 0 ||
      ::listen(listener.get(), kBacklog) != 0 ||
      ::getsockname(listener.get(), general, &size) != 0) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(errno)));
  }
  port = ntohs(address.sin_port);
  return listener;
}

void make_close_a_reset(int fd) {
  const linger at_once = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace moe::scripted_server
