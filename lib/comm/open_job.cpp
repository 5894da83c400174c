#include <fmt/format.h>

#include "lib/comm/backend.hpp"

namespace moe::comm {

std::unique_ptr<Job> open_job(const std::string& backend, const BackendOptions& options) {
  if (backend == "threads") return open_threads_job(options);
  if (backend == "null") return open_null_job(options);
  if (backend == "mpi") return open_mpi_job(options);
  if (backend == "nccl") return open_nccl_job(options);
  throw Error(ErrorCode::kUsage,
              fmt::format("--backend: expected threads, mpi, nccl or null, found \"{}\"", backend));
}

}  // namespace moe::comm
