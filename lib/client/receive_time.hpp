#pragma once

// When bytes arrived at this host, from the kernel's receive time stamps (SO_TIMESTAMPING): right
// even while the process was busy or waited for a core. The stamps are wall clock times; they are
// moved to CLOCK_MONOTONIC and held inside the interval in which the bytes must have arrived, so a
// step of the wall clock cannot reach a figure.

#include <array>
#include <cstddef>
#include <span>

namespace moe::client {

// CLOCK_MONOTONIC in seconds.
[[nodiscard]] double monotonic_s();

// False when the kernel has no such stamps for this socket.
bool enable_receive_times(int socket);

struct Received {
  long size = 0;  // bytes; 0: the other side has closed; below 0: see errno
  double arrival_s = 0.0;
};

class ReceiveTimes {
 public:
  // Compares the two clocks; once for each pass over ready sockets is enough.
  void synchronise();
  // Arrival of the last byte that the next read will take, without taking it: what arrived in
  // several segments before it was read counts from the last of them, never too early.
  // `not_before_s` is when the socket was last known to be empty, `now_s` the present, both
  // monotonic. Without a stamp: `now_s`.
  // The size is that of the bytes it holds for.
  [[nodiscard]] Received last_byte(int socket, double not_before_s, double now_s);
  // Reads, and says when the last of the bytes it took arrived.
  [[nodiscard]] Received take(int socket, std::span<char> buffer, double not_before_s,
                              double now_s);
  [[nodiscard]] bool has_stamps() const { return has_stamps_; }

 private:
  Received receive(int socket, std::span<char> buffer, int flags, double not_before_s,
                   double now_s);

  double wall_minus_monotonic_s_ = 0.0;
  std::array<char, 16384> unused_{};  // as long as libcurl's reads; nothing is written to it
  bool has_stamps_ = false;
};

}  // namespace moe::client
