#include "lib/comm/tcp_store.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/check.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/text.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/comm/tcp_message.hpp"

namespace moe::comm {
namespace {

constexpr double kPollStep_s = 0.1;     // between looks at the interrupt
constexpr double kRetryStep_s = 0.05;   // between attempts to connect
constexpr double kStrangerLimit_s = 5;  // for a newcomer to say who it is
constexpr std::size_t kMaxStrangers = 256;

std::string system_text() {
  return std::strerror(errno);
}

void set_up(int descriptor) {
  // Small messages go out at once; without it an exchange takes as long as a delayed answer.
  const int on = 1;
  (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// One peer: what it sent so far, and what it said.
struct Connection {
  Socket socket;
  StoreMessageReader reader{kMaxHelloBytes};
  std::string who;
  double since_s = 0.0;
};

enum class Arrival : std::uint8_t { kNothing, kBytes, kEnd };

// Takes what is there, without waiting.
Arrival receive(Connection& connection) {
  char buffer[65536];
  const ssize_t count = recv(connection.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (count > 0) {
    connection.reader.feed({buffer, static_cast<std::size_t>(count)});
    return Arrival::kBytes;
  }
  const bool is_empty = count < 0 && (errno == EAGAIN || errno == EINTR);
  return is_empty ? Arrival::kNothing : Arrival::kEnd;
}

// Waits until one of them may have news, at most until the deadline or for one step.
void wait_for_any(std::vector<pollfd>& descriptors, double left_s) {
  const double step_s = std::clamp(left_s, 0.0, kPollStep_s);
  (void)poll(descriptors.data(), descriptors.size(), static_cast<int>(step_s * 1000.0) + 1);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (is_open()) (void)close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (is_open()) (void)close(descriptor_);
}

int Socket::release() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  return descriptor;
}

StoreListener listen_for_ranks(int port) {
  MOE_CHECK(port >= 0 && port <= 65535);
  StoreListener listener;
  listener.socket = Socket(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool has_ipv6 = listener.socket.is_open();
  if (!has_ipv6) listener.socket = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int descriptor = listener.socket.get();
  const int on = 1;
  const int off = 0;
  (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (has_ipv6) {
    (void)setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto& any = reinterpret_cast<sockaddr_in6&>(address);
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof(sockaddr_in6);
  } else {
    auto& any = reinterpret_cast<sockaddr_in&>(address);
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(port));
  }
  const bool is_bound = bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                        listen(descriptor, SOMAXCONN) == 0;
  if (!is_bound) {
    throw Error(
        ErrorCode::kRuntime,
        fmt::format("the ranks cannot meet at port {} of this host: {}; choose another with "
                    "MASTER_PORT",
                    port, system_text()));
  }
  (void)getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  listener.port = has_ipv6 ? ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port)
                           : ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
  return listener;
}

struct TcpStore::Impl {
  explicit Impl(StoreOptions given) : options(std::move(given)) {
    MOE_CHECK(options.num_ranks >= 1 && options.rank >= 0 && options.rank < options.num_ranks);
  }

  StoreOptions options;
  SteadyClock clock;
  std::vector<Connection> peers;  // at rank 0: by rank; elsewhere: rank 0 alone
  std::uint32_t sequence = 0;

  [[nodiscard]] bool is_first() const { return options.rank == 0; }
  [[nodiscard]] bool is_interrupted() const {
    return options.interrupt != nullptr && options.interrupt->requested();
  }

  [[noreturn]] void stuck(const std::string& message, const std::string& operation, double since_s,
                          const std::vector<int>& waited_for) const {
    StuckReport report;
    report.rank = options.rank;
    report.operation = operation;
    report.waited_s = clock.now_s() - since_s;
    for (const int rank : waited_for) report.pairs.push_back({rank, options.rank});
    report.was_interrupted = is_interrupted();
    throw StuckError(message, {report});
  }

  // False: the peer is gone, or takes nothing until the deadline.
  [[nodiscard]] bool send_all(const Connection& peer, const StoreMessage& message,
                              double deadline_s) const {
    const std::string bytes = encode_message(message);
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(peer.socket.get(), bytes.data() + sent, bytes.size() - sent,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) {
        sent += static_cast<std::size_t>(count);
        continue;
      }
      const bool is_full = count < 0 && (errno == EAGAIN || errno == EINTR);
      if (!is_full || clock.now_s() >= deadline_s) return false;
      std::vector<pollfd> descriptors = {{peer.socket.get(), POLLOUT, 0}};
      wait_for_any(descriptors, deadline_s - clock.now_s());
    }
    return true;
  }

  [[nodiscard]] StoreMessage message(StoreMessageKind kind, std::string body) const {
    return {kind, static_cast<std::uint32_t>(options.rank), sequence, std::move(body)};
  }

  void meet_as_first(const StoreListener& listener);
  void meet_as_other();
  [[nodiscard]] Socket connect_to_first(double deadline_s, std::string& reason) const;
  [[nodiscard]] bool admit(Connection& newcomer, const StoreMessage& hello, std::string& reason);
  [[nodiscard]] std::optional<StoreMessage> next_of(Connection& peer, int rank, double since_s);
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
  [[nodiscard]] std::vector<std::string> contribute(const std::string& mine);
  void give_up(const std::string& reason) noexcept;
};

// True when the newcomer took its rank's place. A refusal has its reason; the run goes on without
// the newcomer. Ranks that disagree about the job end it.
bool TcpStore::Impl::admit(Connection& newcomer, const StoreMessage& hello, std::string& reason) {
  std::vector<std::string> texts;
  if (hello.kind == StoreMessageKind::kHello) texts = decode_texts(hello.body);
  if (texts.size() != 3) {
    reason = "expected a greeting";
    return false;
  }
  newcomer.who = printable(texts[2]);
  if (texts[0] != std::to_string(options.num_ranks) || texts[1] != options.must_agree) {
    const std::string difference = fmt::format(
        "the ranks do not agree: {} ranks, {} at rank 0 ({}); {} ranks, {} at rank {} "
        "({})",
        options.num_ranks, options.must_agree, options.who, printable(texts[0]),
        printable(texts[1]), hello.rank, newcomer.who);
    (void)send_all(newcomer, message(StoreMessageKind::kRefusal, difference), clock.now_s() + 1.0);
    give_up(difference);
    throw Error(ErrorCode::kUsage, difference);
  }
  if (hello.rank == 0 || hello.rank >= static_cast<std::uint32_t>(options.num_ranks)) {
    reason = fmt::format("there is no place for a rank {} of {}", hello.rank, options.num_ranks);
    return false;
  }
  Connection& place = peers[hello.rank];
  if (place.socket.is_open()) {
    reason = fmt::format("rank {} is there already: {}", hello.rank, place.who);
    return false;
  }
  newcomer.reader.set_max_body(kMaxStoreBytes);
  place = std::move(newcomer);
  return true;
}

void TcpStore::Impl::meet_as_first(const StoreListener& listener) {
  peers.resize(static_cast<std::size_t>(options.num_ranks));
  const double since_s = clock.now_s();
  const double deadline_s = since_s + options.meet_limit_s;
  std::vector<Connection> strangers;
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int rank = 1; rank < options.num_ranks; ++rank) {
      if (!peers[static_cast<std::size_t>(rank)].socket.is_open()) ranks.push_back(rank);
    }
    return ranks;
  };
  for (std::vector<int> waited_for = missing(); !waited_for.empty(); waited_for = missing()) {
    if (clock.now_s() >= deadline_s || is_interrupted()) {
      const std::string text =
          fmt::format("of {} ranks {} did not come to port {} within {:.0f} s, first rank {}",
                      options.num_ranks, waited_for.size(), listener.port, options.meet_limit_s,
                      waited_for.front());
      give_up(text);
      stuck(text, "meeting of the ranks", since_s, waited_for);
    }
    std::vector<pollfd> descriptors = {{listener.socket.get(), POLLIN, 0}};
    for (const Connection& one : strangers) descriptors.push_back({one.socket.get(), POLLIN, 0});
    wait_for_any(descriptors, deadline_s - clock.now_s());
    if ((descriptors[0].revents & POLLIN) != 0 && strangers.size() < kMaxStrangers) {
      Connection newcomer;
      newcomer.socket = Socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      newcomer.since_s = clock.now_s();
      if (newcomer.socket.is_open()) {
        set_up(newcomer.socket.get());
        strangers.push_back(std::move(newcomer));
      }
    }
    std::erase_if(strangers, [&](Connection& stranger) {
      const Arrival arrival = receive(stranger);
      if (arrival == Arrival::kEnd) return true;
      std::string reason;
      try {
        const std::optional<StoreMessage> hello = stranger.reader.next();
        if (!hello) return clock.now_s() - stranger.since_s > kStrangerLimit_s;
        if (admit(stranger, *hello, reason)) return true;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kUsage) throw;
        return true;
      }
      (void)send_all(stranger, message(StoreMessageKind::kRefusal, reason), clock.now_s() + 1.0);
      return true;
    });
  }
  for (int rank = 1; rank < options.num_ranks; ++rank) {
    (void)send_all(peers[static_cast<std::size_t>(rank)], message(StoreMessageKind::kWelcome, ""),
                   deadline_s);
  }
}

Socket TcpStore::Impl::connect_to_first(double deadline_s, std::string& reason) const {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (error != 0) {
    reason = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Socket attempt(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!attempt.is_open()) continue;
    if (connect(attempt.get(), one->ai_addr, one->ai_addrlen) != 0) {
      reason = system_text();
      if (errno != EINPROGRESS) continue;
      // A host that answers nothing must not hold this up until the kernel gives up.
      std::vector<pollfd> descriptors = {{attempt.get(), POLLOUT, 0}};
      const double limit_s = std::min(deadline_s, clock.now_s() + 2.0);
      while (descriptors[0].revents == 0 && clock.now_s() < limit_s && !is_interrupted()) {
        wait_for_any(descriptors, limit_s - clock.now_s());
      }
      int failure = ETIMEDOUT;
      socklen_t length = sizeof(failure);
      if (descriptors[0].revents != 0) {
        (void)getsockopt(attempt.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
      }
      if (failure != 0) {
        reason = std::strerror(failure);
        continue;
      }
    }
    set_up(attempt.get());
    return attempt;
  }
  return {};
}

void TcpStore::Impl::meet_as_other() {
  const double since_s = clock.now_s();
  const double deadline_s = since_s + options.meet_limit_s;
  peers.resize(1);
  std::string reason = "nobody answered";
  const auto fail = [&] {
    stuck(fmt::format("rank {} did not meet rank 0 at {}:{} within {:.0f} s: {}", options.rank,
                      printable(options.host), options.port, options.meet_limit_s, reason),
          "meeting of the ranks", since_s, {0});
  };
  while (clock.now_s() < deadline_s && !is_interrupted()) {
    Connection first;
    first.socket = connect_to_first(deadline_s, reason);
    if (!first.socket.is_open()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kRetryStep_s));
      continue;
    }
    first.reader.set_max_body(kMaxStoreBytes);
    const std::string hello =
        encode_texts({std::to_string(options.num_ranks), options.must_agree, options.who});
    if (!send_all(first, message(StoreMessageKind::kHello, hello), deadline_s)) continue;
    peers[0] = std::move(first);
    for (;;) {
      const std::optional<StoreMessage> answer = next_of(peers[0], 0, since_s);
      if (answer && answer->kind == StoreMessageKind::kWelcome) return;
      if (answer && answer->kind == StoreMessageKind::kRefusal) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("rank {} was refused: {}", options.rank, printable(answer->body)));
      }
      if (clock.now_s() >= deadline_s || is_interrupted()) {
        reason = "other ranks are missing";
        fail();
      }
    }
  }
  fail();
}

// Waits one step for a message of a peer. Throws when the peer is gone, gave up or talks nonsense.
std::optional<StoreMessage> TcpStore::Impl::next_of(Connection& peer, int rank, double since_s) {
  std::optional<StoreMessage> next;
  try {
    next = peer.reader.next();
    if (!next) {
      std::vector<pollfd> descriptors = {{peer.socket.get(), POLLIN, 0}};
      wait_for_any(descriptors, kPollStep_s);
      const Arrival arrival = receive(peer);
      next = peer.reader.next();
      if (arrival == Arrival::kEnd && !next) {
        stuck(fmt::format("rank {}{} closed its connection", rank,
                          peer.who.empty() ? "" : " (" + peer.who + ")"),
              "exchange of texts", since_s, {rank});
      }
    }
  } catch (const StuckError&) {
    throw;
  } catch (const Error& error) {
    stuck(fmt::format("rank {}: {}", rank, error.what()), "exchange of texts", since_s, {rank});
  }
  if (next && next->kind == StoreMessageKind::kFailure) {
    stuck(fmt::format("rank {} gave up: {}", next->rank, printable(next->body)),
          "exchange of texts", since_s, {static_cast<int>(next->rank)});
  }
  return next;
}

std::vector<std::string> TcpStore::Impl::gather(const std::string& mine) {
  const double since_s = clock.now_s();
  const double deadline_s = since_s + options.time_limit_s;
  const std::size_t num_ranks = static_cast<std::size_t>(options.num_ranks);
  std::vector<std::string> texts(num_ranks);
  std::vector<bool> is_there(num_ranks, false);
  texts[0] = mine;
  is_there[0] = true;
  for (;;) {
    std::vector<int> waited_for;
    std::vector<pollfd> descriptors;
    for (std::size_t rank = 1; rank < num_ranks; ++rank) {
      if (is_there[rank]) continue;
      waited_for.push_back(static_cast<int>(rank));
      descriptors.push_back({peers[rank].socket.get(), POLLIN, 0});
    }
    if (waited_for.empty()) break;
    if (clock.now_s() >= deadline_s || is_interrupted()) {
      stuck(fmt::format("{} of {} ranks sent nothing within {:.0f} s, first rank {}",
                        waited_for.size(), num_ranks, options.time_limit_s, waited_for.front()),
            "exchange of texts", since_s, waited_for);
    }
    wait_for_any(descriptors, deadline_s - clock.now_s());
    for (std::size_t i = 0; i < waited_for.size(); ++i) {
      const std::size_t rank = static_cast<std::size_t>(waited_for[i]);
      if (descriptors[i].revents == 0) continue;
      const std::optional<StoreMessage> share = next_of(peers[rank], waited_for[i], since_s);
      if (!share) continue;
      if (share->kind != StoreMessageKind::kShare || share->sequence != sequence) {
        stuck(fmt::format("rank {} is at another step of the run", rank), "exchange of texts",
              since_s, {waited_for[i]});
      }
      texts[rank] = share->body;
      is_there[rank] = true;
    }
  }
  const StoreMessage shares = message(StoreMessageKind::kShares, encode_texts(texts));
  for (std::size_t rank = 1; rank < num_ranks; ++rank) {
    if (send_all(peers[rank], shares, deadline_s)) continue;
    stuck(fmt::format("rank {} ({}) takes nothing any more", rank, peers[rank].who),
          "exchange of texts", since_s, {static_cast<int>(rank)});
  }
  return texts;
}

std::vector<std::string> TcpStore::Impl::contribute(const std::string& mine) {
  const double since_s = clock.now_s();
  const double deadline_s = since_s + options.time_limit_s;
  if (!send_all(peers[0], message(StoreMessageKind::kShare, mine), deadline_s)) {
    stuck("rank 0 takes nothing any more", "exchange of texts", since_s, {0});
  }
  for (;;) {
    const std::optional<StoreMessage> shares = next_of(peers[0], 0, since_s);
    if (shares) {
      std::vector<std::string> texts;
      const bool is_answer =
          shares->kind == StoreMessageKind::kShares && shares->sequence == sequence;
      if (is_answer) texts = decode_texts(shares->body);
      if (texts.size() == static_cast<std::size_t>(options.num_ranks)) return texts;
      stuck("rank 0 is at another step of the run", "exchange of texts", since_s, {0});
    }
    if (clock.now_s() >= deadline_s || is_interrupted()) {
      stuck(fmt::format("rank 0 sent nothing within {:.0f} s", options.time_limit_s),
            "exchange of texts", since_s, {0});
    }
  }
}

void TcpStore::Impl::give_up(const std::string& reason) noexcept {
  try {
    const StoreMessage failure =
        message(StoreMessageKind::kFailure, reason.substr(0, kMaxHelloBytes));
    for (const Connection& peer : peers) {
      if (peer.socket.is_open()) (void)send_all(peer, failure, clock.now_s() + 1.0);
    }
  } catch (const std::exception&) {
    // Out of memory while giving up: the others notice the closed connection.
    peers.clear();
  }
}

TcpStore::TcpStore(StoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  if (impl_->is_first()) {
    impl_->meet_as_first(listen_for_ranks(impl_->options.port));
  } else {
    impl_->meet_as_other();
  }
}

TcpStore::TcpStore(StoreOptions options, StoreListener listener)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  MOE_CHECK(impl_->is_first());
  impl_->meet_as_first(listener);
}

TcpStore::~TcpStore() = default;

std::vector<std::string> TcpStore::exchange_texts(const std::string& mine) {
  ++impl_->sequence;
  try {
    return impl_->is_first() ? impl_->gather(mine) : impl_->contribute(mine);
  } catch (const Error& error) {
    if (impl_->is_first()) impl_->give_up(error.what());
    throw;
  }
}

void TcpStore::give_up(const std::string& reason) noexcept {
  impl_->give_up(reason);
}

}  // namespace moe::comm
