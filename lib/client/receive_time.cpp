#include "lib/client/receive_time.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>

#include <linux/net_tstamp.h>
#include <sys/socket.h>

namespace moe::client {
namespace {

constexpr int kAttempts = 8;
constexpr double kTight_s = 2e-6;

// Whole seconds of the wall clock are large: the difference is taken before it becomes a double.
double seconds_between(const timespec& later, const timespec& earlier) {
  return static_cast<double>(later.tv_sec - earlier.tv_sec) +
         1e-9 * static_cast<double>(later.tv_nsec - earlier.tv_nsec);
}

timespec clock_time(clockid_t clock) {
  timespec time{};
  (void)clock_gettime(clock, &time);
  return time;
}

}  // namespace

double monotonic_s() {
  return seconds_between(clock_time(CLOCK_MONOTONIC), {});
}

bool enable_receive_times(int socket) {
  const int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  return setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) == 0;
}

void ReceiveTimes::synchronise() {
  // A pause between the two readings would go into every arrival: the tightest of a few counts.
  double smallest_s = 1e9;
  for (int attempt = 0; attempt < kAttempts && smallest_s > kTight_s; ++attempt) {
    const timespec before = clock_time(CLOCK_MONOTONIC);
    const timespec wall = clock_time(CLOCK_REALTIME);
    const double gap_s = seconds_between(clock_time(CLOCK_MONOTONIC), before);
    if (gap_s >= smallest_s) continue;
    smallest_s = gap_s;
    wall_minus_monotonic_s_ = seconds_between(wall, before) - gap_s / 2.0;
  }
}

Received ReceiveTimes::last_byte(int socket, double not_before_s, double now_s) {
  // With MSG_TRUNC the kernel walks over the bytes and copies none.
  return receive(socket, unused_, MSG_PEEK | MSG_TRUNC, not_before_s, now_s);
}

Received ReceiveTimes::take(int socket, std::span<char> buffer, double not_before_s, double now_s) {
  return receive(socket, buffer, 0, not_before_s, now_s);
}

Received ReceiveTimes::receive(int socket, std::span<char> buffer, int flags, double not_before_s,
                               double now_s) {
  iovec data{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[128];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Received received;
  received.size = recvmsg(socket, &message, flags | MSG_DONTWAIT);
  received.arrival_s = now_s;
  if (received.size <= 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_TIMESTAMPING) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
    if (stamp.tv_sec == 0 && stamp.tv_nsec == 0) continue;
    has_stamps_ = true;
    const double arrived_s = seconds_between(stamp, {}) - wall_minus_monotonic_s_;
    received.arrival_s = std::clamp(arrived_s, std::min(not_before_s, now_s), now_s);
    break;
  }
  return received;
}

}  // namespace moe::client
