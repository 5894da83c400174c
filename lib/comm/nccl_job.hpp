#pragma once

// Ranks of NCCL over tables that are given: those of the libraries, or a stand-in in tests.

#include <memory>

#include "lib/comm/backend.hpp"
#include "lib/comm/nccl_load.hpp"

namespace moe::comm {

// Under a launcher this process is one rank: it meets the others over MPI (Open MPI, MPICH) or over
// the TCP store at launcher.store_host (torchrun, Slurm). By hand it is all ranks, a thread and a
// GPU each. Throws Error(kUnavailable), Error(kUsage), StuckError.
[[nodiscard]] std::unique_ptr<Job> open_nccl_job_over(NcclLibraries libraries,
                                                      const BackendOptions& options);

}  // namespace moe::comm
