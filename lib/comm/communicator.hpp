#pragma once

// Ranks that move bytes. Every rank of a job calls the same functions in the same order. Nothing
// waits for ever: what has not ended within the time limit throws StuckError, which names the rank
// that waited and the pairs it waited for.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.hpp"

namespace moe::comm {

// Where a rank runs; empty text: unknown or none.
struct RankPlace {
  std::string host;
  std::string device;  // "GPU 3 (0000:3b:00.0)", "CPUs 0-7"
  std::string nic;     // "mlx5_0", "eth0": the port its traffic to other hosts takes
  std::int64_t process = 0;
  std::int64_t num_cpus = 0;  // that the process may run on
  bool operator==(const RankPlace&) const = default;
};

// One rank's part of an all-to-all. Each span holds one entry for each rank; the part of the rank
// itself is copied too. A pair that moves nothing has 0 bytes on both sides. send_bytes[r] of rank
// s and recv_bytes[s] of rank r must agree (checked: agreement.hpp).
struct Exchange {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::span<const std::int64_t> send_bytes;
  std::span<const std::int64_t> send_offsets;  // bytes from `send`
  std::span<const std::int64_t> recv_bytes;
  std::span<const std::int64_t> recv_offsets;
  // Above 0: every pair of the job moves so many bytes, in the order of ranks without gaps, and all
  // ranks say so. A backend may then use an all-to-all of its own.
  std::int64_t uniform_bytes = 0;
};

// Memory that the backend can move: of the host, or of a device (then not to be touched directly).
struct Buffer {
  std::byte* data = nullptr;
  std::int64_t size_bytes = 0;
  std::shared_ptr<void> owner;
};

struct StuckPair {
  int sender = 0;
  int receiver = 0;
  bool operator==(const StuckPair&) const = default;
};

// What one rank saw when it gave up.
struct StuckReport {
  int rank = 0;
  std::string operation;  // "all-to-all of 4096 bytes"
  double waited_s = 0.0;
  std::vector<StuckPair> pairs;  // that had not ended
  bool was_interrupted = false;  // gave up early because the run was asked to stop
};

// No answer within the time limit, or another rank failed. Exit 5.
class StuckError : public Error {
 public:
  // What one rank saw.
  StuckError(const std::string& message, StuckReport report)
      : Error(ErrorCode::kRuntime, message), reports_{std::move(report)} {}
  // What is known of all (merge_stuck of backend.hpp).
  StuckError(const std::string& message, std::vector<StuckReport> reports,
             std::vector<int> silent_ranks, std::vector<StuckPair> pairs)
      : Error(ErrorCode::kRuntime, message),
        reports_(std::move(reports)),
        silent_ranks_(std::move(silent_ranks)),
        pairs_(std::move(pairs)) {}

  // Of every rank that could still be heard.
  [[nodiscard]] const std::vector<StuckReport>& reports() const noexcept { return reports_; }
  // Ranks that gave no sign of life.
  [[nodiscard]] const std::vector<int>& silent_ranks() const noexcept { return silent_ranks_; }
  // Most suspicious first.
  [[nodiscard]] const std::vector<StuckPair>& pairs() const noexcept { return pairs_; }
  // The run was asked to stop and every rank is alive: nothing is wrong with the network.
  [[nodiscard]] bool is_interruption() const noexcept {
    return silent_ranks_.empty() && !reports_.empty() && reports_.front().was_interrupted;
  }

 private:
  std::vector<StuckReport> reports_;
  std::vector<int> silent_ranks_;
  std::vector<StuckPair> pairs_;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int num_ranks() const = 0;
  [[nodiscard]] virtual const RankPlace& place() const = 0;  // of this rank
  // False: nothing is moved, and nothing may be verified (backend null).
  [[nodiscard]] virtual bool moves_data() const { return true; }

  // Collective: all ranks allocate the same number of buffers in the same order (a backend may
  // register them). Sizes may differ. 0 bytes are allowed. Throws Error(kRuntime) without memory.
  [[nodiscard]] virtual Buffer allocate(std::int64_t size_bytes);
  // Between host memory and a buffer. Not collective.
  virtual void copy_in(std::byte* buffer, const std::byte* host, std::int64_t size_bytes);
  virtual void copy_out(std::byte* host, const std::byte* buffer, std::int64_t size_bytes);

  // Collective. At most one exchange is in flight. begin returns at once; until end has returned
  // neither buffer may be touched and the spans must live. progress moves what can be moved without
  // waiting, for backends that work only when called; true: end would return at once.
  virtual void begin_all_to_all(const Exchange& exchange) = 0;
  [[nodiscard]] virtual bool progress_all_to_all() = 0;
  virtual void end_all_to_all() = 0;
  void all_to_all(const Exchange& exchange) {
    begin_all_to_all(exchange);
    end_all_to_all();
  }

  // Collective. `send` holds size_bytes, `recv` num_ranks x size_bytes, in the order of ranks. The
  // default is an all-to-all in which every rank sends the same bytes to all.
  virtual void all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes);
  // Collective. Both of buffers of this communicator: `send` holds num_ranks x count floats; `recv`
  // gets the sum over ranks of block rank(). The default sums on the host, in the order of ranks.
  virtual void reduce_scatter_sum(const float* send, float* recv, std::int64_t count);

  // Collective.
  virtual void barrier() = 0;

  // Collective, over host memory, not timed: the texts of all ranks, in their order. For figures,
  // counts and decisions.
  [[nodiscard]] virtual std::vector<std::string> exchange_texts(const std::string& mine) = 0;
  // Collective: rank 0's text, at every rank.
  [[nodiscard]] std::string broadcast_text(const std::string& of_rank_0);

 private:
  Buffer scratch_;  // of the default reduce_scatter_sum
};

}  // namespace moe::comm
