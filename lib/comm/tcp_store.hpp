#pragma once

// A small store over TCP for ranks that have nothing else to talk over: they meet at rank 0 and
// exchange texts (an id of NCCL, facts of hosts, figures). A star, no threads. It trusts the
// network it runs in, as MPI and NCCL do: anybody who reaches the port may take a rank's place.
// Bytes of strangers are dropped, and never end the run.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/interrupt.hpp"

namespace moe::comm {

// A descriptor that is closed with its object.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] int release();

 private:
  int descriptor_ = -1;
};

// The place to meet, before the ranks do.
struct StoreListener {
  Socket socket;
  int port = 0;
};
// On all addresses of this host; port 0 takes a free one. Throws Error(kRuntime) when the port is
// taken.
[[nodiscard]] StoreListener listen_for_ranks(int port);

struct StoreOptions {
  std::string host;  // of rank 0
  int port = 0;
  int rank = 0;
  int num_ranks = 1;
  std::string who;           // in messages to others: "node-1, process 4711"
  std::string must_agree;    // the same at all ranks: "NCCL 2.28.9"; said in the message if not
  double meet_limit_s = 60;  // until all ranks are there
  double time_limit_s = 30;  // of one exchange
  const Interrupt* interrupt = nullptr;  // may be null
};

class TcpStore {
 public:
  // Returns when all ranks are there. Throws StuckError, which names the ranks that did not come,
  // and Error(kUsage) at both sides when they do not agree.
  explicit TcpStore(StoreOptions options);
  TcpStore(StoreOptions options, StoreListener listener);  // rank 0, with a listener of its own
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;
  ~TcpStore();

  // Collective: the texts of all ranks, in their order. Throws StuckError when a rank is silent for
  // longer than the limit, closed its connection, or gave up.
  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine);

  // Tells the others, as far as they can be reached, so that they stop waiting. Not collective.
  void give_up(const std::string& reason) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::comm
