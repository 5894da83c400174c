#pragma once

// How ranks come to be. A Job is all ranks of the run as seen by this process: all of them
// (threads, null), one (mpi, nccl under a launcher) or some. Opening one either works or throws
// Error(kUnavailable), exit 4, with the reason: not in this build, no driver, no library, no
// device.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/comm/communicator.hpp"

namespace moe::comm {

// What a launcher told this process, read by lib/app from its environment.
struct LauncherFacts {
  std::string name;  // "Open MPI", "torchrun", "Slurm"; empty: started by hand
  std::optional<int> rank;
  std::optional<int> num_ranks;
  std::optional<int> local_rank;  // among the ranks of this host
  std::optional<int> num_local_ranks;
  std::string store_host;  // where rank 0 can be met, for backends that need it
  int store_port = 0;      // 0: not told
};

struct BackendOptions {
  int num_ranks = 0;  // of threads and null; of nccl without a launcher: GPUs to use; 0: default
  double time_limit_s = 30.0;            // of one collective
  const Interrupt* interrupt = nullptr;  // may be null; waits end soon after it is requested
  LauncherFacts launcher;
  bool registers_buffers = false;    // nccl: symmetric windows, where the library has them
  bool uses_own_all_to_all = false;  // nccl: ncclAlltoAll for uniform exchanges, since 2.28
};

class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  [[nodiscard]] virtual int num_ranks() const = 0;
  // Rank 0 lives in this process: it is the one that reports.
  [[nodiscard]] virtual bool has_rank_0() const = 0;
  // Facts of the library and its settings for the report: {"mpi_library", "Open MPI 4.1.4"}.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;

  // Calls body once for each rank of this process, each on a thread of its own where there are
  // several, and returns when all have ended. When ranks fail, the others are released from their
  // waits; then the first cause is thrown: an error that is no StuckError as it is, else one
  // StuckError with what every rank saw (merge_stuck).
  virtual void run(const std::function<void(Communicator&)>& body) = 0;

  // The last call: rank 0's exit code, at every process, once rank 0 has written its report. Never
  // throws; without an answer within the time limit a process keeps its own code.
  [[nodiscard]] virtual int agree_exit_code(int mine) noexcept = 0;
};

// One error of all that ranks saw. The message names the ranks of which nothing was heard and the
// pairs that hang, those first that both sides or several ranks point at.
[[nodiscard]] StuckError merge_stuck(std::vector<StuckReport> reports,
                                     const std::vector<int>& silent_ranks);

// "threads", "null", "mpi", "nccl". Throws Error(kUsage) for another name, Error(kUnavailable).
[[nodiscard]] std::unique_ptr<Job> open_job(const std::string& backend,
                                            const BackendOptions& options);

// One each; the implementation files decide what this build has.
[[nodiscard]] std::unique_ptr<Job> open_threads_job(const BackendOptions& options);
[[nodiscard]] std::unique_ptr<Job> open_null_job(const BackendOptions& options);
[[nodiscard]] std::unique_ptr<Job> open_mpi_job(const BackendOptions& options);
[[nodiscard]] std::unique_ptr<Job> open_nccl_job(const BackendOptions& options);

}  // namespace moe::comm
