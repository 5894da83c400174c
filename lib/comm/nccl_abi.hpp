#pragma once

// The part of the binary interfaces of NCCL and of the CUDA runtime that the backend calls, as
// tables of function pointers. The libraries are opened at run time, so that a binary starts
// without them, without a driver, and is built without their headers. Types are opaque or plain;
// tests/lib/comm/nccl_abi_test.cpp compares all of this with nccl.h where that is installed.
// Source: nccl.h of NCCL 2.18 to 2.30, cuda_runtime_api.h of CUDA 11 to 13.

#include <cstddef>

#include <climits>

namespace moe::comm {

struct NcclComm;          // ncclComm
struct NcclWindow;        // ncclWindow_vidmem
struct CudaStreamObject;  // CUstream_st
using NcclCommHandle = NcclComm*;
using NcclWindowHandle = NcclWindow*;
using CudaStream = CudaStreamObject*;

// ncclResult_t
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
// ncclDataType_t, ncclRedOp_t
inline constexpr int kNcclInt8 = 0;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclSum = 0;
// Flag of ncclCommWindowRegister, and what it wants of addresses and sizes.
inline constexpr int kNcclWindowSymmetric = 1;
inline constexpr std::size_t kNcclWindowAlignment = 4096;

struct NcclUniqueId {
  char internal[128];
};

// ncclConfig_t as of 2.18. Later versions read `size` and `version` and take their defaults for the
// members that came later.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclApi {
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  const char* (*get_last_error)(NcclCommHandle comm) = nullptr;
  int (*comm_init_rank_config)(NcclCommHandle* comm, int num_ranks, NcclUniqueId id, int rank,
                               NcclConfig* config) = nullptr;
  int (*comm_get_async_error)(NcclCommHandle comm, int* result) = nullptr;
  int (*comm_finalize)(NcclCommHandle comm) = nullptr;
  int (*comm_destroy)(NcclCommHandle comm) = nullptr;
  int (*comm_abort)(NcclCommHandle comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* buffer, std::size_t count, int type, int peer, NcclCommHandle comm,
              CudaStream stream) = nullptr;
  int (*recv)(void* buffer, std::size_t count, int type, int peer, NcclCommHandle comm,
              CudaStream stream) = nullptr;
  int (*all_reduce)(const void* send, void* recv, std::size_t count, int type, int op,
                    NcclCommHandle comm, CudaStream stream) = nullptr;
  int (*all_gather)(const void* send, void* recv, std::size_t count, int type, NcclCommHandle comm,
                    CudaStream stream) = nullptr;
  int (*reduce_scatter)(const void* send, void* recv, std::size_t count, int type, int op,
                        NcclCommHandle comm, CudaStream stream) = nullptr;
  // Null in versions that do not have them: since 2.28; 2.19; 2.27.
  int (*all_to_all)(const void* send, void* recv, std::size_t count, int type, NcclCommHandle comm,
                    CudaStream stream) = nullptr;
  int (*mem_alloc)(void** pointer, std::size_t size) = nullptr;
  int (*mem_free)(void* pointer) = nullptr;
  int (*comm_window_register)(NcclCommHandle comm, void* buffer, std::size_t size,
                              NcclWindowHandle* window, int flags) = nullptr;
  int (*comm_window_deregister)(NcclCommHandle comm, NcclWindowHandle window) = nullptr;
};

// cudaError_t
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaErrorStubLibrary = 34;
inline constexpr int kCudaErrorInsufficientDriver = 35;
inline constexpr int kCudaErrorNoDevice = 100;
inline constexpr int kCudaErrorNotReady = 600;
// cudaMemcpyKind, cudaStreamNonBlocking
inline constexpr int kCudaMemcpyDefault = 4;
inline constexpr unsigned int kCudaStreamNonBlocking = 1;

struct CudaApi {
  int (*runtime_get_version)(int* version) = nullptr;
  int (*driver_get_version)(int* version) = nullptr;
  int (*get_device_count)(int* count) = nullptr;
  int (*set_device)(int device) = nullptr;
  int (*device_get_pci_bus_id)(char* text, int length, int device) = nullptr;
  const char* (*get_error_name)(int error) = nullptr;
  const char* (*get_error_string)(int error) = nullptr;
  int (*malloc)(void** pointer, std::size_t size) = nullptr;
  int (*free)(void* pointer) = nullptr;
  int (*memcpy_async)(void* target, const void* source, std::size_t size, int kind,
                      CudaStream stream) = nullptr;
  int (*stream_create)(CudaStream* stream, unsigned int flags) = nullptr;
  int (*stream_destroy)(CudaStream stream) = nullptr;
  int (*stream_query)(CudaStream stream) = nullptr;
};

}  // namespace moe::comm
