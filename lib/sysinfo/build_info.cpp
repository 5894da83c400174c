#include "lib/sysinfo/build_info.hpp"

#include "lib/sysinfo/accelerators.hpp"

#include "build_commit.hpp"
#include "build_config.hpp"

namespace moe::sysinfo {
namespace {

Backend not_compiled_in(const char* name, const char* why_not) {
  return {name, false, false, std::string("not in this build: ") + why_not};
}

Backend cuda_backend() {
  if (!build_config::kHasCuda) return not_compiled_in("cuda", build_config::kWhyNotCuda);
  const LibraryPresence driver = probe_library("libcuda.so.1");
  const GpuPresence gpu = probe_gpu();
  const std::string reason = driver.is_present ? gpu.reason : "no CUDA driver: " + driver.reason;
  return {"cuda", true, reason.empty(), reason};
}

Backend nccl_backend() {
  if (!build_config::kHasNccl) return not_compiled_in("nccl", build_config::kWhyNotNccl);
  const LibraryPresence library = probe_library("libnccl.so.2");
  const GpuPresence gpu = probe_gpu();
  const std::string reason = library.is_present ? gpu.reason : library.reason;
  return {"nccl", true, reason.empty(), reason};
}

Backend mpi_backend() {
  if (!build_config::kHasMpi) return not_compiled_in("mpi", build_config::kWhyNotMpi);
  return {"mpi", true, true, ""};
}

}  // namespace

BuildInfo build_info() {
  return {build_config::kVersion, build_config::kCommit, build_config::kBuildType,
          build_config::kCompiler};
}

std::vector<Backend> list_backends() {
  return {{"cpu", true, true, ""}, cuda_backend(), nccl_backend(), mpi_backend()};
}

}  // namespace moe::sysinfo
