#include "lib/comm/nccl_communicator.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"
#include "lib/comm/patience.hpp"

namespace moe::comm {
namespace {

// Of a communicator's orderly end, which nobody waits for longer.
constexpr double kCloseLimit_s = 5.0;

bool has_windows(const NcclApi& nccl) {
  return nccl.mem_alloc != nullptr && nccl.mem_free != nullptr &&
         nccl.comm_window_register != nullptr && nccl.comm_window_deregister != nullptr;
}

std::string first_line(const char* text) {
  if (text == nullptr) return "";
  const std::string all(text);
  return printable(all.substr(0, all.find('\n')));
}

}  // namespace

struct NcclCommunicator::Handle {
  explicit Handle(const NcclApi& api) : nccl(api) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { drop(); }

  void drop() {
    if (comm != nullptr) (void)nccl.comm_abort(comm);
    comm = nullptr;
  }

  NcclApi nccl;
  NcclCommHandle comm = nullptr;
};

std::string registration_text(const NcclApi& nccl, const BackendOptions& options) {
  if (!options.registers_buffers) return "not registered";
  return has_windows(nccl) ? "registered as symmetric windows"
                           : "not registered: this version of NCCL has no windows";
}

NcclCommunicator::NcclCommunicator(const NcclLibraries& libraries, const BackendOptions& options,
                                   NcclRank rank, SideChannel& side)
    : libraries_(libraries),
      options_(options),
      rank_(std::move(rank)),
      side_(side),
      handle_(std::make_shared<Handle>(libraries.nccl)) {
  check_cuda(libraries_.cuda.set_device(rank_.device), "cudaSetDevice");
  char bus_id[32] = "";
  check_cuda(libraries_.cuda.device_get_pci_bus_id(bus_id, sizeof(bus_id), rank_.device),
             "cudaDeviceGetPCIBusId");
  rank_.place.device = fmt::format("GPU {} ({})", rank_.device, first_line(bus_id));
  meet();
  try {
    connect();
  } catch (...) {
    // The destructor does not run for what was not constructed.
    if (flag_ != nullptr) (void)libraries_.cuda.free(flag_);
    if (stream_ != nullptr) (void)libraries_.cuda.stream_destroy(stream_);
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  handle_->drop();
  (void)libraries_.cuda.free(flag_);
  (void)libraries_.cuda.stream_destroy(stream_);
}

std::string NcclCommunicator::who() const {
  return fmt::format("rank {} ({}, {})", rank_.rank, rank_.place.host, rank_.place.device);
}

std::string NcclCommunicator::describe(const Operation& operation) {
  if (operation.bytes < 0) return operation.name;
  return fmt::format("{} of {} bytes", operation.name, operation.bytes);
}

void NcclCommunicator::wait_for_all_peers() {
  pairs_.clear();
  for (int peer = 0; peer < rank_.num_ranks; ++peer) {
    if (peer != rank_.rank) pairs_.push_back({peer, rank_.rank});
  }
}

void NcclCommunicator::check_cuda(int error, const char* call) const {
  if (error == kCudaSuccess) return;
  throw Error(ErrorCode::kRuntime, fmt::format("{}: {}: {} ({})", who(), call,
                                               first_line(libraries_.cuda.get_error_string(error)),
                                               first_line(libraries_.cuda.get_error_name(error))));
}

// A call that is still under way is waited for.
void NcclCommunicator::check_nccl(int result, const char* call, const Operation& operation) {
  if (result == kNcclInProgress) {
    wait_for_calls(operation);
    return;
  }
  if (result == kNcclSuccess) return;
  throw Error(ErrorCode::kRuntime,
              fmt::format("{}: {}: {} ({}); NCCL_DEBUG=WARN says more", who(), call,
                          first_line(libraries_.nccl.get_error_string(result)),
                          first_line(libraries_.nccl.get_last_error(handle_->comm))));
}

// NCCL hangs, or fails without a word, when two ranks have one GPU or libraries differ.
void NcclCommunicator::meet() {
  const std::vector<std::string> texts = side_.exchange_texts(fmt::format(
      "{}\n{}\n{}", rank_.place.host, rank_.place.device.substr(rank_.place.device.find('(')),
      libraries_.nccl_version));
  for (std::size_t b = 0; b < texts.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      const std::size_t version_a = texts[a].rfind('\n');
      const std::size_t version_b = texts[b].rfind('\n');
      if (texts[a].substr(version_a) != texts[b].substr(version_b)) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("rank {} has NCCL {}, rank {} has {}; install one version", a,
                                texts[a].substr(version_a + 1), b, texts[b].substr(version_b + 1)));
      }
      if (texts[a].substr(0, version_a) == texts[b].substr(0, version_b)) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("ranks {} and {} both have the GPU {} of host {}: ask for as many "
                                "ranks as there are GPUs, one rank for each",
                                a, b, texts[a].substr(texts[a].find('(')).substr(0, 14),
                                texts[a].substr(0, texts[a].find('\n'))));
      }
    }
  }
}

void NcclCommunicator::connect() {
  const NcclApi& nccl = libraries_.nccl;
  check_cuda(libraries_.cuda.stream_create(&stream_, kCudaStreamNonBlocking), "cudaStreamCreate");
  void* flag = nullptr;
  check_cuda(libraries_.cuda.malloc(&flag, sizeof(float)), "cudaMalloc");
  flag_ = static_cast<std::byte*>(flag);
  NcclUniqueId id{};
  std::string id_text;
  if (rank_.rank == 0) {
    check_nccl(nccl.get_unique_id(&id), "ncclGetUniqueId", {});
    id_text.assign(id.internal, sizeof(id.internal));
  }
  id_text = side_.exchange_texts(id_text).front();
  if (id_text.size() != sizeof(id.internal)) {
    throw Error(ErrorCode::kRuntime, who() + ": rank 0 sent no id of NCCL");
  }
  std::memcpy(id.internal, id_text.data(), sizeof(id.internal));
  NcclConfig config;
  config.blocking = 0;
  wait_for_all_peers();
  check_nccl(nccl.comm_init_rank_config(&handle_->comm, rank_.num_ranks, id, rank_.rank, &config),
             "ncclCommInitRankConfig", {"start of NCCL"});
}

bool NcclCommunicator::is_stream_idle() const {
  const int state = libraries_.cuda.stream_query(stream_);
  if (state == kCudaErrorNotReady) return false;
  check_cuda(state, "cudaStreamQuery");
  return true;
}

void NcclCommunicator::give_up(const Patience& patience, const Operation& operation) {
  StuckReport report;
  report.rank = rank_.rank;
  report.operation = describe(operation);
  report.waited_s = patience.waited_s();
  report.pairs = pairs_;
  report.was_interrupted = patience.was_interrupted();
  // What is still on the stream ends with it, so that buffers can be freed.
  handle_->drop();
  throw StuckError(fmt::format("{}: {} did not end", who(), describe(operation)), {report});
}

// Between two looks at something that is not done.
void NcclCommunicator::look_for_trouble(Patience& patience, const Operation& operation) {
  int state = kNcclSuccess;
  if (handle_->comm != nullptr) {
    const int result = libraries_.nccl.comm_get_async_error(handle_->comm, &state);
    if (result != kNcclSuccess) state = result;
  }
  if (state != kNcclSuccess && state != kNcclInProgress) {
    const std::string last = first_line(libraries_.nccl.get_last_error(handle_->comm));
    handle_->drop();
    throw Error(
        ErrorCode::kRuntime,
        fmt::format("{}: {}: {} ({}); NCCL_DEBUG=WARN says more", who(), describe(operation),
                    first_line(libraries_.nccl.get_error_string(state)), last));
  }
  const bool has_other_failed = rank_.has_failed != nullptr && rank_.has_failed->load();
  if (patience.is_over() || has_other_failed) give_up(patience, operation);
}

// NCCL's own work on the host, before anything is on the stream.
void NcclCommunicator::wait_for_calls(const Operation& operation) {
  Patience patience(options_.time_limit_s, options_.interrupt, kOwnCoreSpins);
  for (;;) {
    int state = kNcclSuccess;
    const int result = libraries_.nccl.comm_get_async_error(handle_->comm, &state);
    if (result == kNcclSuccess && state == kNcclSuccess) return;
    look_for_trouble(patience, operation);
  }
}

void NcclCommunicator::wait_for_stream(const Operation& operation) {
  Patience patience(options_.time_limit_s, options_.interrupt, kOwnCoreSpins);
  while (!is_stream_idle()) look_for_trouble(patience, operation);
}

Buffer NcclCommunicator::allocate(std::int64_t size_bytes) {
  MOE_CHECK(size_bytes >= 0);
  if (options_.registers_buffers && has_windows(libraries_.nccl)) {
    return allocate_registered(size_bytes);
  }
  if (size_bytes == 0) return {};
  void* pointer = nullptr;
  check_cuda(libraries_.cuda.malloc(&pointer, static_cast<std::size_t>(size_bytes)), "cudaMalloc");
  const std::shared_ptr<void> owner(
      pointer, [free = libraries_.cuda.free](void* memory) { (void)free(memory); });
  return {static_cast<std::byte*>(pointer), size_bytes, owner};
}

// All ranks register the same size at the same point of the run.
Buffer NcclCommunicator::allocate_registered(std::int64_t size_bytes) {
  std::int64_t largest = 0;
  for (const std::string& text : exchange_texts(std::to_string(size_bytes))) {
    largest = std::max<std::int64_t>(largest, std::stoll(text));
  }
  if (largest == 0) return {};
  const std::size_t size =
      static_cast<std::size_t>(align_up(largest, static_cast<std::int64_t>(kNcclWindowAlignment)));
  void* pointer = nullptr;
  check_nccl(libraries_.nccl.mem_alloc(&pointer, size), "ncclMemAlloc", {"allocation"});
  struct Registered {
    std::shared_ptr<Handle> handle;
    void* pointer = nullptr;
    NcclWindowHandle window = nullptr;
    ~Registered() {
      const bool is_registered = window != nullptr && handle->comm != nullptr;
      if (is_registered) (void)handle->nccl.comm_window_deregister(handle->comm, window);
      (void)handle->nccl.mem_free(pointer);
    }
  };
  auto owner = std::make_shared<Registered>();
  owner->handle = handle_;
  owner->pointer = pointer;
  check_nccl(libraries_.nccl.comm_window_register(handle_->comm, pointer, size, &owner->window,
                                                  kNcclWindowSymmetric),
             "ncclCommWindowRegister", {"registration of a buffer", size_bytes});
  return {static_cast<std::byte*>(pointer), size_bytes, owner};
}

void NcclCommunicator::copy_in(std::byte* buffer, const std::byte* host, std::int64_t size_bytes) {
  if (size_bytes == 0) return;
  check_cuda(libraries_.cuda.memcpy_async(buffer, host, static_cast<std::size_t>(size_bytes),
                                          kCudaMemcpyDefault, stream_),
             "cudaMemcpyAsync");
  wait_for_stream({"copy to the device", size_bytes});
}

void NcclCommunicator::copy_out(std::byte* host, const std::byte* buffer, std::int64_t size_bytes) {
  if (size_bytes == 0) return;
  check_cuda(libraries_.cuda.memcpy_async(host, buffer, static_cast<std::size_t>(size_bytes),
                                          kCudaMemcpyDefault, stream_),
             "cudaMemcpyAsync");
  wait_for_stream({"copy from the device", size_bytes});
}

// One group; pairs that move nothing post nothing, on both sides.
void NcclCommunicator::post(const Exchange& exchange) {
  const NcclApi& nccl = libraries_.nccl;
  const int mine = rank_.rank;
  check_nccl(nccl.group_start(), "ncclGroupStart", in_flight_);
  int result = kNcclSuccess;
  const char* call = "";
  for (int peer = 0; peer < rank_.num_ranks && result == kNcclSuccess; ++peer) {
    const std::size_t p = static_cast<std::size_t>(peer);
    if (peer == mine) continue;
    if (exchange.send_bytes[p] > 0) {
      call = "ncclSend";
      result = nccl.send(exchange.send + exchange.send_offsets[p],
                         static_cast<std::size_t>(exchange.send_bytes[p]), kNcclInt8, peer,
                         handle_->comm, stream_);
    }
    if (exchange.recv_bytes[p] > 0 && result == kNcclSuccess) {
      call = "ncclRecv";
      result = nccl.recv(exchange.recv + exchange.recv_offsets[p],
                         static_cast<std::size_t>(exchange.recv_bytes[p]), kNcclInt8, peer,
                         handle_->comm, stream_);
    }
  }
  // A group that was opened is closed, or the next one nests in it.
  const int end = nccl.group_end();
  if (result == kNcclInProgress) result = kNcclSuccess;
  check_nccl(result, call, in_flight_);
  check_nccl(end, "ncclGroupEnd", in_flight_);
  const std::size_t self = static_cast<std::size_t>(mine);
  if (exchange.send_bytes[self] != exchange.recv_bytes[self]) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{} sends {} bytes to itself and expects {}", who(),
                            exchange.send_bytes[self], exchange.recv_bytes[self]));
  }
  if (exchange.send_bytes[self] > 0) {
    check_cuda(libraries_.cuda.memcpy_async(exchange.recv + exchange.recv_offsets[self],
                                            exchange.send + exchange.send_offsets[self],
                                            static_cast<std::size_t>(exchange.send_bytes[self]),
                                            kCudaMemcpyDefault, stream_),
               "cudaMemcpyAsync");
  }
}

void NcclCommunicator::begin_all_to_all(const Exchange& exchange) {
  const std::size_t ranks = static_cast<std::size_t>(rank_.num_ranks);
  MOE_CHECK(exchange.send_bytes.size() == ranks && exchange.recv_bytes.size() == ranks);
  pairs_.clear();
  std::int64_t bytes = 0;
  for (int peer = 0; peer < rank_.num_ranks; ++peer) {
    const std::size_t p = static_cast<std::size_t>(peer);
    bytes += exchange.send_bytes[p];
    if (peer == rank_.rank) continue;
    if (exchange.send_bytes[p] > 0) pairs_.push_back({rank_.rank, peer});
    if (exchange.recv_bytes[p] > 0) pairs_.push_back({peer, rank_.rank});
  }
  in_flight_ = {"all-to-all", bytes};
  const bool is_own = options_.uses_own_all_to_all && exchange.uniform_bytes > 0 &&
                      libraries_.nccl.all_to_all != nullptr;
  if (!is_own) {
    post(exchange);
    return;
  }
  check_nccl(libraries_.nccl.all_to_all(exchange.send + exchange.send_offsets.front(),
                                        exchange.recv + exchange.recv_offsets.front(),
                                        static_cast<std::size_t>(exchange.uniform_bytes), kNcclInt8,
                                        handle_->comm, stream_),
             "ncclAlltoAll", in_flight_);
}

bool NcclCommunicator::progress_all_to_all() {
  return is_stream_idle();
}

void NcclCommunicator::end_all_to_all() {
  wait_for_stream(in_flight_);
}

void NcclCommunicator::all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes) {
  const Operation operation = {"all-gather", size_bytes};
  wait_for_all_peers();
  check_nccl(libraries_.nccl.all_gather(send, recv, static_cast<std::size_t>(size_bytes), kNcclInt8,
                                        handle_->comm, stream_),
             "ncclAllGather", operation);
  wait_for_stream(operation);
}

void NcclCommunicator::reduce_scatter_sum(const float* send, float* recv, std::int64_t count) {
  const Operation operation = {"reduce-scatter", count * static_cast<std::int64_t>(sizeof(float))};
  wait_for_all_peers();
  check_nccl(libraries_.nccl.reduce_scatter(send, recv, static_cast<std::size_t>(count),
                                            kNcclFloat32, kNcclSum, handle_->comm, stream_),
             "ncclReduceScatter", operation);
  wait_for_stream(operation);
}

void NcclCommunicator::barrier() {
  const Operation operation = {"barrier"};
  wait_for_all_peers();
  check_nccl(
      libraries_.nccl.all_reduce(flag_, flag_, 1, kNcclFloat32, kNcclSum, handle_->comm, stream_),
      "ncclAllReduce", operation);
  wait_for_stream(operation);
}

void NcclCommunicator::close() {
  Patience patience(std::min(options_.time_limit_s, kCloseLimit_s), options_.interrupt,
                    kOwnCoreSpins);
  int state = libraries_.nccl.comm_finalize(handle_->comm);
  while (state == kNcclInProgress && !patience.is_over()) {
    if (libraries_.nccl.comm_get_async_error(handle_->comm, &state) != kNcclSuccess) break;
  }
  // One that does not end in order is aborted by the destructor: all figures are in by now.
  if (state != kNcclSuccess) return;
  (void)libraries_.nccl.comm_destroy(handle_->comm);
  handle_->comm = nullptr;
}

}  // namespace moe::comm
