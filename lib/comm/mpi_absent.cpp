// Stands for mpi_job.cpp in a build without MPI.

#include <fmt/format.h>

#include "lib/comm/backend.hpp"
#include "lib/sysinfo/build_info.hpp"

namespace moe::comm {

std::unique_ptr<Job> open_mpi_job(const BackendOptions& /*options*/) {
  std::string reason;
  for (const sysinfo::Backend& backend : sysinfo::list_backends()) {
    if (backend.name == "mpi") reason = backend.reason;
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("--backend mpi: {}; build with -DMOE_WITH_MPI=ON where Open MPI is "
                          "installed, or use --backend threads",
                          reason));
}

}  // namespace moe::comm
