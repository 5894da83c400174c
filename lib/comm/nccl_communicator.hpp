#pragma once

// One rank of NCCL over a table of functions. Calls return before they are done (blocking = 0) and
// are waited for by looking, so that a peer that never answers ends in StuckError, not in a hang.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lib/comm/backend.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/comm/nccl_load.hpp"
#include "lib/comm/patience.hpp"

namespace moe::comm {

// How ranks talk before NCCL is up and beside it: texts over host memory.
class SideChannel {
 public:
  SideChannel() = default;
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;
  virtual ~SideChannel() = default;
  [[nodiscard]] virtual std::vector<std::string> exchange_texts(const std::string& mine) = 0;
};

struct NcclRank {
  int rank = 0;
  int num_ranks = 1;
  int device = 0;                                 // of those that this process sees
  RankPlace place;                                // device filled in by the communicator
  const std::atomic<bool>* has_failed = nullptr;  // another rank of this process gave up
};

class NcclCommunicator final : public Communicator {
 public:
  // Collective. Takes the device for the calling thread, which all later calls must come from.
  // Throws Error(kUsage) when two ranks have one GPU or versions differ, Error(kRuntime).
  NcclCommunicator(const NcclLibraries& libraries, const BackendOptions& options, NcclRank rank,
                   SideChannel& side);
  ~NcclCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_.rank; }
  [[nodiscard]] int num_ranks() const override { return rank_.num_ranks; }
  [[nodiscard]] const RankPlace& place() const override { return rank_.place; }

  [[nodiscard]] Buffer allocate(std::int64_t size_bytes) override;
  void copy_in(std::byte* buffer, const std::byte* host, std::int64_t size_bytes) override;
  void copy_out(std::byte* host, const std::byte* buffer, std::int64_t size_bytes) override;
  void begin_all_to_all(const Exchange& exchange) override;
  [[nodiscard]] bool progress_all_to_all() override;
  void end_all_to_all() override;
  void all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes) override;
  void reduce_scatter_sum(const float* send, float* recv, std::int64_t count) override;
  void barrier() override;
  [[nodiscard]] std::vector<std::string> exchange_texts(const std::string& mine) override {
    return side_.exchange_texts(mine);
  }

  // Collective, after everything: ends NCCL in order. Without it the destructor aborts.
  void close();

 private:
  struct Handle;  // the communicator of NCCL, which buffers may outlive
  // Put into words only when it goes wrong.
  struct Operation {
    const char* name = "";
    std::int64_t bytes = -1;  // below 0: not said
  };

  void check_cuda(int error, const char* call) const;
  void check_nccl(int result, const char* call, const Operation& operation);
  void meet();
  void connect();
  void post(const Exchange& exchange);
  [[nodiscard]] Buffer allocate_registered(std::int64_t size_bytes);
  [[nodiscard]] bool is_stream_idle() const;
  void look_for_trouble(Patience& patience, const Operation& operation);
  void wait_for_calls(const Operation& operation);
  void wait_for_stream(const Operation& operation);
  [[noreturn]] void give_up(const Patience& patience, const Operation& operation);
  [[nodiscard]] std::string who() const;
  [[nodiscard]] static std::string describe(const Operation& operation);
  void wait_for_all_peers();

  const NcclLibraries& libraries_;
  const BackendOptions& options_;
  NcclRank rank_;
  SideChannel& side_;
  std::shared_ptr<Handle> handle_;
  CudaStream stream_ = nullptr;
  std::byte* flag_ = nullptr;  // one float of the device, for barriers
  Operation in_flight_;
  std::vector<StuckPair> pairs_;  // that move bytes in it
};

// "symmetric windows", or why buffers are not registered.
[[nodiscard]] std::string registration_text(const NcclApi& nccl, const BackendOptions& options);

}  // namespace moe::comm
