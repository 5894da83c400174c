#pragma once

// Descriptors and listening sockets of the server.

#include <cstdint>
#include <string>
#include <utility>

namespace moe::scripted_server {

// Owns a descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// A TCP socket that listens without blocking. `port` 0 takes any free one and is set to it. Throws
// Error(kRuntime) when the address cannot be taken, Error(kUsage) for a host that is no IPv4
// address.
[[nodiscard]] Descriptor listen_on(const std::string& host, std::uint16_t& port);

// Closing sends a reset and drops what was not delivered.
void make_close_a_reset(int fd);

// Small writes leave at once.
void send_at_once(int fd);

}  // namespace moe::scripted_server
