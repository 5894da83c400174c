// Our declarations of NCCL and of the CUDA runtime against the real headers, where those are
// installed: arguments in number and size, constants, the layout of the configuration.

#include "lib/comm/nccl_abi.hpp"

#include <cstddef>
#include <type_traits>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace moe::comm {
namespace {

// Two parameters are passed alike when they have one size and both are pointers or both are not.
template <typename A, typename B>
constexpr bool kIsAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename Ours, typename Theirs>
struct Alike : std::false_type {};

template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
struct Alike<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<kIsAlike<OurResult, TheirResult>> {
  static_assert(sizeof...(Ours) == sizeof...(Theirs));
  static_assert((kIsAlike<Ours, Theirs> && ...));
};

template <typename Ours, typename Theirs>
constexpr bool matches(Ours* ours, Theirs theirs) {
  (void)ours;
  (void)theirs;
  return Alike<Ours, Theirs>::value;
}

TEST(NcclAbi, CallsTakeWhatTheRealOnesTake) {
  NcclApi api;
  EXPECT_TRUE(matches(&api.get_version, &ncclGetVersion));
  EXPECT_TRUE(matches(&api.get_unique_id, &ncclGetUniqueId));
  EXPECT_TRUE(matches(&api.get_error_string, &ncclGetErrorString));
  EXPECT_TRUE(matches(&api.get_last_error, &ncclGetLastError));
  EXPECT_TRUE(matches(&api.comm_init_rank_config, &ncclCommInitRankConfig));
  EXPECT_TRUE(matches(&api.comm_get_async_error, &ncclCommGetAsyncError));
  EXPECT_TRUE(matches(&api.comm_finalize, &ncclCommFinalize));
  EXPECT_TRUE(matches(&api.comm_destroy, &ncclCommDestroy));
  EXPECT_TRUE(matches(&api.comm_abort, &ncclCommAbort));
  EXPECT_TRUE(matches(&api.group_start, &ncclGroupStart));
  EXPECT_TRUE(matches(&api.group_end, &ncclGroupEnd));
  EXPECT_TRUE(matches(&api.send, &ncclSend));
  EXPECT_TRUE(matches(&api.recv, &ncclRecv));
  EXPECT_TRUE(matches(&api.all_reduce, &ncclAllReduce));
  EXPECT_TRUE(matches(&api.all_gather, &ncclAllGather));
  EXPECT_TRUE(matches(&api.reduce_scatter, &ncclReduceScatter));
#if NCCL_VERSION_CODE >= 22800
  EXPECT_TRUE(matches(&api.all_to_all, &ncclAlltoAll));
#endif
#if NCCL_VERSION_CODE >= 22700
  EXPECT_TRUE(matches(&api.mem_alloc, &ncclMemAlloc));
  EXPECT_TRUE(matches(&api.mem_free, &ncclMemFree));
  EXPECT_TRUE(matches(&api.comm_window_register, &ncclCommWindowRegister));
  EXPECT_TRUE(matches(&api.comm_window_deregister, &ncclCommWindowDeregister));
  EXPECT_EQ(kNcclWindowSymmetric, NCCL_WIN_COLL_SYMMETRIC);
#endif
}

TEST(NcclAbi, ConstantsAndTheConfigurationAreTheRealOnes) {
  EXPECT_EQ(kNcclSuccess, ncclSuccess);
  EXPECT_EQ(kNcclInProgress, ncclInProgress);
  EXPECT_EQ(kNcclInt8, ncclInt8);
  EXPECT_EQ(kNcclFloat32, ncclFloat32);
  EXPECT_EQ(kNcclSum, ncclSum);
  EXPECT_EQ(sizeof(NcclUniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(offsetof(NcclConfig, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(NcclConfig, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclConfig, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
  EXPECT_LE(sizeof(NcclConfig), sizeof(ncclConfig_t));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
  EXPECT_EQ(NcclConfig().blocking, theirs.blocking);
}

TEST(CudaAbi, IsTheRealOne) {
  CudaApi api;
  EXPECT_TRUE(matches(&api.get_device_count, &cudaGetDeviceCount));
  EXPECT_TRUE(matches(&api.set_device, &cudaSetDevice));
  EXPECT_TRUE(matches(&api.device_get_pci_bus_id, &cudaDeviceGetPCIBusId));
  EXPECT_TRUE(matches(&api.get_error_name, &cudaGetErrorName));
  EXPECT_TRUE(matches(&api.free, &cudaFree));
  EXPECT_TRUE(matches(&api.memcpy_async, &cudaMemcpyAsync));
  EXPECT_TRUE(matches(&api.stream_create, &cudaStreamCreateWithFlags));
  EXPECT_TRUE(matches(&api.stream_destroy, &cudaStreamDestroy));
  EXPECT_TRUE(matches(&api.stream_query, &cudaStreamQuery));
  EXPECT_EQ(kCudaErrorStubLibrary, cudaErrorStubLibrary);
  EXPECT_EQ(kCudaErrorInsufficientDriver, cudaErrorInsufficientDriver);
  EXPECT_EQ(kCudaErrorNotReady, cudaErrorNotReady);
  EXPECT_EQ(kCudaMemcpyDefault, cudaMemcpyDefault);
  EXPECT_EQ(kCudaStreamNonBlocking, static_cast<unsigned int>(cudaStreamNonBlocking));
}

}  // namespace
}  // namespace moe::comm
