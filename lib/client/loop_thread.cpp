#include "lib/client/loop_thread.hpp"

#include <cstdint>
#include <ctime>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moe::client {
namespace {

constexpr std::uint64_t kSlice_ns = 100'000;  // the shortest that the kernel takes

// struct sched_attr of Linux, which the C library knows only in later versions.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
  std::uint32_t util_min = 0;
  std::uint32_t util_max = 0;
};

bool read_attributes(SchedulingAttributes& attributes) {
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
}

}  // namespace

bool make_punctual() {
  (void)prctl(PR_SET_TIMERSLACK, 1UL);
  SchedulingAttributes attributes;
  if (!read_attributes(attributes) || attributes.policy != SCHED_OTHER) return false;
  attributes.runtime_ns = kSlice_ns;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) return false;
  // Older kernels take the request and forget it.
  SchedulingAttributes granted;
  return read_attributes(granted) && granted.runtime_ns == kSlice_ns;
}

double thread_cpu_s() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace moe::client
