#include "lib/scripted_server/server_loop.hpp"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace moe::scripted_server {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxPipelinedBytes = std::size_t{64} << 10;
constexpr std::size_t kEventsAtOnce = 256;
constexpr std::size_t kMaxOrder = 1 << 20;
constexpr int kInterruptPollMs = 50;
constexpr double kQuietForLog_s = 0.002;  // nothing is due for so long: time to write the log
constexpr std::size_t kMaxUnsaid = 20000;
constexpr std::uint32_t kDeath = 0xFFFFFFFF;  // the due time of the server's own end

// Names of what is no connection, above every place and epoch.
constexpr std::uint64_t kListener = ~std::uint64_t{0};
constexpr std::uint64_t kTimer = kListener - 1;
constexpr std::uint64_t kWake = kListener - 2;

std::uint64_t name_of(std::uint32_t index, std::uint32_t epoch) {
  return (static_cast<std::uint64_t>(epoch & 0x7FFFFFFF) << 32) | index;
}

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kRuntime,
              fmt::format("scripted server: {}: {}", what, std::strerror(errno)));
}

}  // namespace

ServerLoop::ServerLoop(Script script, ServerOptions options)
    : script_(std::move(script)), options_(std::move(options)), port_(options_.port) {
  listener_ = listen_on(options_.host, port_);
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  wake_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!epoll_.is_open() || !timer_.is_open() || !wake_.is_open()) fail("no descriptors left");
  watch(listener_.get(), kListener);
  watch(timer_.get(), kTimer);
  watch(wake_.get(), kWake);
  for (std::size_t reply = 0; reply < script_.replies.size(); ++reply) {
    const auto times = static_cast<std::size_t>(script_.replies[reply].times);
    if (reply_order_.size() + times > kMaxOrder) {
      throw Error(
          ErrorCode::kInput,
          fmt::format("the replies of the script repeat after more than {} requests", kMaxOrder));
    }
    reply_order_.insert(reply_order_.end(), times, reply);
  }
  begin_s_ = clock_.now_s();
}

void ServerLoop::watch(int fd, std::uint64_t name) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = name;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
}

void ServerLoop::set_interest(Connection& connection, std::uint32_t interest) {
  if (connection.interest == interest) return;
  epoll_event event = {};
  event.events = interest;
  event.data.u64 = connection.name;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
  connection.interest = interest;
}

void ServerLoop::stop() {
  const std::uint64_t one = 1;
  // A full counter means that a wake-up is pending anyway.
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void ServerLoop::run(const Interrupt& interrupt) {
  begin_s_ = clock_.now_s();
  if (script_.dies_after_s) due_.push({begin_s_ + *script_.dies_after_s, kDeath, 0});
  std::array<epoll_event, kEventsAtOnce> events;
  while (!is_stopping_ && !interrupt.requested()) {
    fire_due();
    flush_records(false);
    arm_timer();
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   kInterruptPollMs);
    if (count < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      handle_event(event.data.u64, event.events);
      if (has_free_slot_) start_waiting();
      fire_due();
    }
  }
  end_all(ReplyEnd::kStopped, false);
  flush_records(true);
}

void ServerLoop::handle_event(std::uint64_t name, std::uint32_t events) {
  if (name == kListener) {
    accept_all();
    return;
  }
  if (name == kTimer || name == kWake) {
    std::uint64_t count = 0;
    (void)!::read(name == kTimer ? timer_.get() : wake_.get(), &count, sizeof(count));
    if (name == kTimer) armed_for_s_ = 0.0;
    is_stopping_ = is_stopping_ || name == kWake;
    return;
  }
  const auto index = static_cast<std::uint32_t>(name);
  Connection& connection = *connections_[index];
  // A place may have been given to another connection since the event was fetched.
  if (!connection.socket.is_open() || connection.name != name) return;
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    client_left(index);
    return;
  }
  if ((events & EPOLLOUT) != 0 && connection.state == ConnectionState::kReplying) {
    pump(index);
    advance(index);
  }
  if ((events & EPOLLIN) != 0 && connection.socket.is_open() && connection.name == name) {
    read_from(index);
  }
}

void ServerLoop::accept_all() {
  while (listener_.is_open()) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      add_connection(fd);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if ((errno == EMFILE || errno == ENFILE) && spare_.is_open()) {
      // Without a descriptor the connection would stay in line and wake the loop for ever.
      spare_.close();
      const Descriptor refused(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (refused.is_open()) make_close_a_reset(refused.get());
    }
    if (!spare_.is_open()) spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return;
  }
}

void ServerLoop::add_connection(int fd) {
  std::uint32_t index = 0;
  if (free_places_.empty()) {
    index = static_cast<std::uint32_t>(connections_.size());
    connections_.push_back(std::make_unique<Connection>());
  } else {
    index = free_places_.back();
    free_places_.pop_back();
  }
  Connection& connection = *connections_[index];
  const std::uint32_t ticket = connection.ticket + 1;
  const std::uint32_t epoch = connection.epoch + 1;
  connection = Connection{};
  connection.ticket = ticket;
  connection.epoch = epoch;
  connection.name = name_of(index, epoch);
  connection.socket = Descriptor(fd);
  connection.interest = EPOLLIN;
  send_at_once(fd);
  watch(fd, connection.name);
  ++log_.connections;
}

void ServerLoop::read_from(std::uint32_t index) {
  Connection& connection = *connections_[index];
  std::array<char, kReadBytes> bytes;
  const ssize_t size = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    client_left(index);
    return;
  }
  if (connection.state == ConnectionState::kLingering) return;
  connection.reader.append({bytes.data(), static_cast<std::size_t>(size)});
  advance(index);
  if (connection.socket.is_open() && connection.state != ConnectionState::kReading &&
      connection.reader.buffered_bytes() > kMaxPipelinedBytes) {
    set_interest(connection, connection.interest & ~static_cast<std::uint32_t>(EPOLLIN));
  }
}

void ServerLoop::drop(std::uint32_t index) {
  Connection& connection = *connections_[index];
  ++connection.ticket;
  connection.timeline.reset();
  connection.reader = RequestReader{};
  connection.socket.close();
  free_places_.push_back(index);
}

void ServerLoop::schedule(std::uint32_t index, double at_s) {
  due_.push({at_s, index, ++connections_[index]->ticket});
}

void ServerLoop::fire_due() {
  while (!due_.empty() && due_.top().at_s <= clock_.now_s()) {
    const DueTime due = due_.top();
    due_.pop();
    if (due.connection == kDeath) {
      die();
      continue;
    }
    Connection& connection = *connections_[due.connection];
    if (connection.ticket != due.ticket || !connection.socket.is_open()) continue;
    if (connection.state == ConnectionState::kLingering) {
      drop(due.connection);
    } else if (connection.state == ConnectionState::kReplying) {
      pump(due.connection);
      advance(due.connection);
      if (has_free_slot_) start_waiting();
    }
  }
}

void ServerLoop::arm_timer() {
  if (due_.empty() || due_.top().at_s == armed_for_s_) return;
  armed_for_s_ = due_.top().at_s;
  const double whole_s = std::floor(armed_for_s_);
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(whole_s);
  when.it_value.tv_nsec = static_cast<long>((armed_for_s_ - whole_s) * 1e9);
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) fail("timer");
}

void ServerLoop::flush_records(bool is_all) {
  // One by one: a record takes long enough to delay what falls due meanwhile.
  while (options_.sink && !unsaid_.empty()) {
    const bool is_quiet = due_.empty() || due_.top().at_s - clock_.now_s() > kQuietForLog_s;
    if (!is_all && !is_quiet && unsaid_.size() < kMaxUnsaid) return;
    options_.sink(unsaid_.front());
    unsaid_.pop_front();
  }
}

void ServerLoop::die() {
  listener_.close();
  end_all(ReplyEnd::kServerDied, true);
}

void ServerLoop::end_all(ReplyEnd end, bool resets) {
  waiting_.clear();
  counters_.waiting = 0;
  for (std::uint32_t index = 0; index < connections_.size(); ++index) {
    Connection& connection = *connections_[index];
    if (!connection.socket.is_open()) continue;
    const bool has_request =
        connection.is_generation && connection.state != ConnectionState::kReading;
    if (has_request) settle(connection, end);
    if (resets) make_close_a_reset(connection.socket.get());
    drop(index);
  }
}

}  // namespace moe::scripted_server
