#include "lib/comm/nccl_load.hpp"

#include <cstdint>

#include <dlfcn.h>
#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::comm {
namespace {

// Sends of zero bytes hang before 2.12.10, and the configuration that makes calls return before
// they are done has its present form since 2.18.
constexpr int kMinNcclVersion = 21800;

[[noreturn]] void refuse_nccl(const std::string& message) {
  throw Error(ErrorCode::kUnavailable, "--backend nccl: " + message);
}

// The first library of the list that can be opened. The reason why the first cannot is the one that
// helps: that is the version most machines have.
void* open_first(const std::vector<std::string>& names, const char* what) {
  std::string reason;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = dlerror();
    if (reason.empty()) reason = error != nullptr ? error : name;
  }
  refuse_nccl(fmt::format(
      "{} cannot be loaded ({}); install it or add its folder to LD_LIBRARY_PATH", what, reason));
}

template <typename Function>
void find(void* library, const char* symbol, Function& function) {
  // POSIX promises that a function's address survives the trip through void*.
  function = reinterpret_cast<Function>(reinterpret_cast<std::uintptr_t>(dlsym(library, symbol)));
}

template <typename Function>
void need(void* library, const char* symbol, Function& function) {
  find(library, symbol, function);
  if (function == nullptr) refuse_nccl(fmt::format("the library has no {}: it is too old", symbol));
}

CudaApi bind_cuda(void* library) {
  CudaApi cuda;
  need(library, "cudaRuntimeGetVersion", cuda.runtime_get_version);
  need(library, "cudaDriverGetVersion", cuda.driver_get_version);
  need(library, "cudaGetDeviceCount", cuda.get_device_count);
  need(library, "cudaSetDevice", cuda.set_device);
  need(library, "cudaDeviceGetPCIBusId", cuda.device_get_pci_bus_id);
  need(library, "cudaGetErrorName", cuda.get_error_name);
  need(library, "cudaGetErrorString", cuda.get_error_string);
  need(library, "cudaMalloc", cuda.malloc);
  need(library, "cudaFree", cuda.free);
  need(library, "cudaMemcpyAsync", cuda.memcpy_async);
  need(library, "cudaStreamCreateWithFlags", cuda.stream_create);
  need(library, "cudaStreamDestroy", cuda.stream_destroy);
  need(library, "cudaStreamQuery", cuda.stream_query);
  return cuda;
}

NcclApi bind_nccl(void* library) {
  NcclApi nccl;
  need(library, "ncclGetVersion", nccl.get_version);
  need(library, "ncclGetUniqueId", nccl.get_unique_id);
  need(library, "ncclGetErrorString", nccl.get_error_string);
  need(library, "ncclGetLastError", nccl.get_last_error);
  need(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  need(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  need(library, "ncclCommFinalize", nccl.comm_finalize);
  need(library, "ncclCommDestroy", nccl.comm_destroy);
  need(library, "ncclCommAbort", nccl.comm_abort);
  need(library, "ncclGroupStart", nccl.group_start);
  need(library, "ncclGroupEnd", nccl.group_end);
  need(library, "ncclSend", nccl.send);
  need(library, "ncclRecv", nccl.recv);
  need(library, "ncclAllReduce", nccl.all_reduce);
  need(library, "ncclAllGather", nccl.all_gather);
  need(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclAlltoAll", nccl.all_to_all);
  find(library, "ncclMemAlloc", nccl.mem_alloc);
  find(library, "ncclMemFree", nccl.mem_free);
  find(library, "ncclCommWindowRegister", nccl.comm_window_register);
  find(library, "ncclCommWindowDeregister", nccl.comm_window_deregister);
  return nccl;
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void check_nccl(NcclLibraries& libraries) {
  const CudaApi& cuda = libraries.cuda;
  int runtime = 0;
  int driver = 0;
  // Without a driver this one says 0 and no error.
  if (cuda.runtime_get_version(&runtime) != kCudaSuccess) runtime = 0;
  if (cuda.driver_get_version(&driver) != kCudaSuccess) driver = 0;
  libraries.cuda_runtime_version = cuda_version_text(runtime);
  libraries.cuda_driver_version = driver > 0 ? cuda_version_text(driver) : "none";
  int num_devices = 0;
  const int error = cuda.get_device_count(&num_devices);
  if (error != kCudaSuccess) {
    const bool has_no_driver =
        driver == 0 && (error == kCudaErrorInsufficientDriver || error == kCudaErrorStubLibrary);
    refuse_nccl(fmt::format(
        "no GPU can be used: {} ({}), CUDA runtime {}, driver {}",
        has_no_driver ? "no NVIDIA driver is loaded" : cuda.get_error_string(error),
        cuda.get_error_name(error), libraries.cuda_runtime_version, libraries.cuda_driver_version));
  }
  if (num_devices < 1) {
    refuse_nccl("the driver shows no GPU to this process; look at CUDA_VISIBLE_DEVICES");
  }
  libraries.num_devices = num_devices;
}

NcclLibraries load_nccl(const NcclSonames& names) {
  NcclLibraries libraries;
  libraries.cuda = bind_cuda(open_first(names.cuda, "the CUDA runtime"));
  check_nccl(libraries);
  libraries.nccl = bind_nccl(open_first(names.nccl, "NCCL"));
  int version = 0;
  if (libraries.nccl.get_version(&version) != kNcclSuccess || version < kMinNcclVersion) {
    refuse_nccl(
        fmt::format("NCCL {} is loaded, at least {} is needed: older ones hang on empty sends",
                    nccl_version_text(version), nccl_version_text(kMinNcclVersion)));
  }
  libraries.nccl_version = nccl_version_text(version);
  return libraries;
}

}  // namespace moe::comm
