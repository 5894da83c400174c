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

// In an unevaluated operand, so that the libraries themselves are not linked.
template <typename Ours, typename Theirs>
constexpr bool kMatches = Alike<Ours, Theirs>::value;

TEST(NcclAbi, CallsTakeWhatTheRealOnesTake) {
  NcclApi api;
  EXPECT_TRUE((kMatches<decltype(api.get_version), decltype(&ncclGetVersion)>));
  EXPECT_TRUE((kMatches<decltype(api.get_unique_id), decltype(&ncclGetUniqueId)>));
  EXPECT_TRUE((kMatches<decltype(api.get_error_string), decltype(&ncclGetErrorString)>));
  EXPECT_TRUE((kMatches<decltype(api.get_last_error), decltype(&ncclGetLastError)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_init_rank_config), decltype(&ncclCommInitRankConfig)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_get_async_error), decltype(&ncclCommGetAsyncError)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_finalize), decltype(&ncclCommFinalize)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_destroy), decltype(&ncclCommDestroy)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_abort), decltype(&ncclCommAbort)>));
  EXPECT_TRUE((kMatches<decltype(api.group_start), decltype(&ncclGroupStart)>));
  EXPECT_TRUE((kMatches<decltype(api.group_end), decltype(&ncclGroupEnd)>));
  EXPECT_TRUE((kMatches<decltype(api.send), decltype(&ncclSend)>));
  EXPECT_TRUE((kMatches<decltype(api.recv), decltype(&ncclRecv)>));
  EXPECT_TRUE((kMatches<decltype(api.all_reduce), decltype(&ncclAllReduce)>));
  EXPECT_TRUE((kMatches<decltype(api.all_gather), decltype(&ncclAllGather)>));
  EXPECT_TRUE((kMatches<decltype(api.reduce_scatter), decltype(&ncclReduceScatter)>));
#if NCCL_VERSION_CODE >= 22800
  EXPECT_TRUE((kMatches<decltype(api.all_to_all), decltype(&ncclAlltoAll)>));
#endif
#if NCCL_VERSION_CODE >= 22700
  EXPECT_TRUE((kMatches<decltype(api.mem_alloc), decltype(&ncclMemAlloc)>));
  EXPECT_TRUE((kMatches<decltype(api.mem_free), decltype(&ncclMemFree)>));
  EXPECT_TRUE((kMatches<decltype(api.comm_window_register), decltype(&ncclCommWindowRegister)>));
  EXPECT_TRUE(
      (kMatches<decltype(api.comm_window_deregister), decltype(&ncclCommWindowDeregister)>));
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
  EXPECT_TRUE((kMatches<decltype(api.get_device_count), decltype(&cudaGetDeviceCount)>));
  EXPECT_TRUE((kMatches<decltype(api.set_device), decltype(&cudaSetDevice)>));
  EXPECT_TRUE((kMatches<decltype(api.device_get_pci_bus_id), decltype(&cudaDeviceGetPCIBusId)>));
  EXPECT_TRUE((kMatches<decltype(api.get_error_name), decltype(&cudaGetErrorName)>));
  EXPECT_TRUE((kMatches<decltype(api.free), decltype(&cudaFree)>));
  EXPECT_TRUE((kMatches<decltype(api.memcpy_async), decltype(&cudaMemcpyAsync)>));
  EXPECT_TRUE((kMatches<decltype(api.stream_create), decltype(&cudaStreamCreateWithFlags)>));
  EXPECT_TRUE((kMatches<decltype(api.stream_destroy), decltype(&cudaStreamDestroy)>));
  EXPECT_TRUE((kMatches<decltype(api.stream_query), decltype(&cudaStreamQuery)>));
  EXPECT_EQ(kCudaErrorStubLibrary, cudaErrorStubLibrary);
  EXPECT_EQ(kCudaErrorInsufficientDriver, cudaErrorInsufficientDriver);
  EXPECT_EQ(kCudaErrorNotReady, cudaErrorNotReady);
  EXPECT_EQ(kCudaMemcpyDefault, cudaMemcpyDefault);
  EXPECT_EQ(kCudaStreamNonBlocking, static_cast<unsigned int>(cudaStreamNonBlocking));
}

}  // namespace
}  // namespace moe::comm
