#include "tests/lib/comm/fake_nccl.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "lib/base/check.hpp"

namespace moe::comm {

// What the opaque handles point at.
struct CudaStreamObject {
  int num_pending = 0;
};

struct NcclWindow {
  std::size_t size = 0;
};

struct NcclComm {
  std::uint64_t group = 0;
  int rank = 0;
  int num_ranks = 0;
  int async_error = kNcclSuccess;
  std::uint64_t num_collectives = 0;
  std::vector<std::size_t> window_sizes;
};

}  // namespace moe::comm

namespace moe::comm::test {
namespace {

struct Transfer {
  bool is_send = false;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  NcclComm* comm = nullptr;
  CudaStreamObject* stream = nullptr;
};

enum class Kind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };

struct Part {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  CudaStreamObject* stream = nullptr;
};

struct Collective {
  Kind kind = Kind::kAllReduce;
  std::size_t count = 0;
  std::map<int, Part> parts;  // by rank
};

// Of one unique id.
struct Group {
  std::set<int> ranks;                                        // that joined
  bool is_up = false;                                         // all did
  std::map<std::pair<int, int>, std::deque<Transfer>> sends;  // sender, receiver
  std::map<std::pair<int, int>, std::deque<Transfer>> recvs;
  std::map<std::uint64_t, Collective> collectives;
  std::map<std::size_t, std::size_t> window_sizes;  // by order of registration
};

// Calls of one thread between GroupStart and GroupEnd.
thread_local int group_depth = 0;
thread_local std::vector<Transfer> group_transfers;
thread_local int current_device = 0;

}  // namespace

struct FakeNccl::State {
  explicit State(FakeBehaviour given) : behaviour(std::move(given)) {}

  FakeBehaviour behaviour;
  mutable std::mutex mutex;
  std::map<std::string, std::int64_t> calls;
  std::map<std::uint64_t, Group> groups;
  std::uint64_t num_ids = 0;
  std::int64_t num_left = 0;
  std::int64_t num_aborted = 0;
  bool has_uneven_windows = false;

  // Counts the call; what it is told to return. With the lock held.
  int count(const char* name, int rank) {
    ++calls[name];
    const auto told = behaviour.fails.find({name, rank});
    return told == behaviour.fails.end() ? kNcclSuccess : told->second;
  }

  void finish(const Transfer& transfer) { --transfer.stream->num_pending; }

  void match(Group& group, const std::pair<int, int>& pair) {
    auto& sends = group.sends[pair];
    auto& recvs = group.recvs[pair];
    if (behaviour.hangs.contains(pair)) return;
    while (!sends.empty() && !recvs.empty()) {
      const Transfer send = sends.front();
      const Transfer recv = recvs.front();
      sends.pop_front();
      recvs.pop_front();
      if (send.bytes != recv.bytes) {
        // On a GPU both sides would wait for ever; NCCL notices it in some versions.
        recv.comm->async_error = 5;
        continue;
      }
      std::memcpy(recv.target, send.source, send.bytes);
      if (behaviour.corrupts.contains(pair)) {
        recv.target[send.bytes / 2] ^= std::byte{0x10};
      }
      finish(send);
      finish(recv);
    }
  }

  void post(const Transfer& transfer) {
    Group& group = groups[transfer.comm->group];
    ++transfer.stream->num_pending;
    const int mine = transfer.comm->rank;
    const std::pair<int, int> pair =
        transfer.is_send ? std::pair(mine, transfer.peer) : std::pair(transfer.peer, mine);
    (transfer.is_send ? group.sends : group.recvs)[pair].push_back(transfer);
    const auto error = behaviour.async_errors.find(mine);
    if (error != behaviour.async_errors.end()) transfer.comm->async_error = error->second;
    match(group, pair);
  }

  static void perform(const Collective& collective) {
    const std::size_t count = collective.count;
    for (const auto& [rank, part] : collective.parts) {
      const std::size_t self = static_cast<std::size_t>(rank);
      for (const auto& [other, from] : collective.parts) {
        const std::size_t peer = static_cast<std::size_t>(other);
        if (collective.kind == Kind::kAllGather) {
          std::memcpy(part.target + peer * count, from.source, count);
        } else if (collective.kind == Kind::kAllToAll) {
          std::memcpy(part.target + peer * count, from.source + self * count, count);
        }
      }
      if (collective.kind == Kind::kReduceScatter) {
        for (std::size_t i = 0; i < count; ++i) {
          float sum = 0.0F;
          for (const auto& [other, from] : collective.parts) {
            float value = 0.0F;
            std::memcpy(&value, from.source + (self * count + i) * sizeof(float), sizeof(float));
            sum += value;
          }
          std::memcpy(part.target + i * sizeof(float), &sum, sizeof(float));
        }
      }
    }
    for (const auto& [rank, part] : collective.parts) --part.stream->num_pending;
  }

  int join(NcclComm* comm, Kind kind, std::size_t count, const Part& part) {
    Group& group = groups[comm->group];
    const std::uint64_t number = comm->num_collectives++;
    Collective& collective = group.collectives[number];
    collective.kind = kind;
    collective.count = count;
    collective.parts[comm->rank] = part;
    ++part.stream->num_pending;
    if (collective.parts.size() < static_cast<std::size_t>(comm->num_ranks)) return kNcclSuccess;
    perform(collective);
    group.collectives.erase(number);
    return kNcclSuccess;
  }

  // Whatever of this communicator was not done never will be.
  void forget(NcclComm* comm) {
    Group& group = groups[comm->group];
    for (auto* queues : {&group.sends, &group.recvs}) {
      for (auto& [pair, queue] : *queues) {
        std::erase_if(queue, [&](const Transfer& transfer) {
          if (transfer.comm != comm) return false;
          finish(transfer);
          return true;
        });
      }
    }
    for (auto& [number, collective] : group.collectives) {
      const auto part = collective.parts.find(comm->rank);
      if (part == collective.parts.end()) continue;
      --part->second.stream->num_pending;
      collective.parts.erase(part);
    }
    --num_left;
    delete comm;
  }
};

namespace {

std::atomic<FakeNccl::State*> current{nullptr};

FakeNccl::State& state() {
  FakeNccl::State* found = current.load();
  MOE_CHECK(found != nullptr);
  return *found;
}

int get_version(int* version) {
  *version = state().behaviour.has_all_to_all ? 22809 : 22703;
  return kNcclSuccess;
}

int get_unique_id(NcclUniqueId* id) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  const std::uint64_t number = ++fake.num_ids;
  std::memset(id->internal, 0x5a, sizeof(id->internal));
  std::memcpy(id->internal, &number, sizeof(number));
  return fake.count("ncclGetUniqueId", -1);
}

const char* get_error_string(int result) {
  switch (result) {
    case 2:
      return "unhandled system error";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    default:
      return "some error";
  }
}

const char* get_last_error(NcclComm*) {
  return "last words of the library\nand a second line";
}

int comm_init(NcclComm** comm, int num_ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  FakeNccl::State& fake = state();
  MOE_CHECK(config->magic == 0xcafebeef && config->blocking == 0);
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::lock_guard lock(fake.mutex);
  const int told = fake.count("ncclCommInitRankConfig", rank);
  if (told != kNcclSuccess) return told;
  *comm = new NcclComm{number, rank, num_ranks, kNcclSuccess, 0, {}};
  ++fake.num_left;
  Group& group = fake.groups[number];
  if (rank != fake.behaviour.init_hangs_at) group.ranks.insert(rank);
  group.is_up = group.ranks.size() == static_cast<std::size_t>(num_ranks);
  return kNcclInProgress;
}

int comm_get_async_error(NcclComm* comm, int* result) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  const bool is_up = fake.groups[comm->group].is_up;
  *result = comm->async_error != kNcclSuccess ? comm->async_error
            : is_up                           ? kNcclSuccess
                                              : kNcclInProgress;
  return kNcclSuccess;
}

int comm_finalize(NcclComm* comm) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  return fake.count("ncclCommFinalize", comm->rank);
}

int comm_destroy(NcclComm* comm) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  fake.forget(comm);
  return kNcclSuccess;
}

int comm_abort(NcclComm* comm) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  ++fake.num_aborted;
  fake.forget(comm);
  return kNcclSuccess;
}

int group_start() {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  ++group_depth;
  return fake.count("ncclGroupStart", -1);
}

int group_end() {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  MOE_CHECK(group_depth > 0);
  const int told = fake.count("ncclGroupEnd", -1);
  if (--group_depth > 0) return told;
  for (const Transfer& transfer : group_transfers) fake.post(transfer);
  group_transfers.clear();
  return told;
}

int add_transfer(const char* name, const Transfer& transfer) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  const int told = fake.count(name, transfer.comm->rank);
  if (told != kNcclSuccess) return told;
  MOE_CHECK(group_depth > 0 && transfer.bytes > 0);
  group_transfers.push_back(transfer);
  return kNcclSuccess;
}

int send(const void* buffer, std::size_t count, int type, int peer, NcclComm* comm,
         CudaStreamObject* stream) {
  MOE_CHECK(type == kNcclInt8);
  return add_transfer("ncclSend", {true, static_cast<const std::byte*>(buffer), nullptr, count,
                                   peer, comm, stream});
}

int recv(void* buffer, std::size_t count, int type, int peer, NcclComm* comm,
         CudaStreamObject* stream) {
  MOE_CHECK(type == kNcclInt8);
  return add_transfer("ncclRecv",
                      {false, nullptr, static_cast<std::byte*>(buffer), count, peer, comm, stream});
}

int collective(const char* name, Kind kind, const void* source, void* target, std::size_t count,
               NcclComm* comm, CudaStreamObject* stream) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  const int told = fake.count(name, comm->rank);
  if (told != kNcclSuccess) return told;
  return fake.join(
      comm, kind, count,
      {static_cast<const std::byte*>(source), static_cast<std::byte*>(target), stream});
}

int all_reduce(const void* source, void* target, std::size_t count, int, int, NcclComm* comm,
               CudaStreamObject* stream) {
  return collective("ncclAllReduce", Kind::kAllReduce, source, target, count, comm, stream);
}

int all_gather(const void* source, void* target, std::size_t count, int, NcclComm* comm,
               CudaStreamObject* stream) {
  return collective("ncclAllGather", Kind::kAllGather, source, target, count, comm, stream);
}

int reduce_scatter(const void* source, void* target, std::size_t count, int, int, NcclComm* comm,
                   CudaStreamObject* stream) {
  return collective("ncclReduceScatter", Kind::kReduceScatter, source, target, count, comm, stream);
}

int all_to_all(const void* source, void* target, std::size_t count, int, NcclComm* comm,
               CudaStreamObject* stream) {
  return collective("ncclAlltoAll", Kind::kAllToAll, source, target, count, comm, stream);
}

int allocate(const char* name, void** pointer, std::size_t size, int failure) {
  FakeNccl::State& fake = state();
  {
    const std::lock_guard lock(fake.mutex);
    const int told = fake.count(name, current_device);
    if (told != kNcclSuccess) return told;
    ++fake.num_left;
  }
  const std::size_t whole = (size + kNcclWindowAlignment - 1) / kNcclWindowAlignment;
  *pointer = std::aligned_alloc(kNcclWindowAlignment, whole * kNcclWindowAlignment);
  if (*pointer == nullptr) return failure;
  std::memset(*pointer, 0xff, size);
  return kNcclSuccess;
}

int release(void* pointer) {
  if (pointer == nullptr) return kNcclSuccess;
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  --fake.num_left;
  std::free(pointer);
  return kNcclSuccess;
}

int mem_alloc(void** pointer, std::size_t size) {
  return allocate("ncclMemAlloc", pointer, size, 1);
}

int cuda_malloc(void** pointer, std::size_t size) {
  return allocate("cudaMalloc", pointer, size, 2);
}

int window_register(NcclComm* comm, void* buffer, std::size_t size, NcclWindow** window,
                    int flags) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  const int told = fake.count("ncclCommWindowRegister", comm->rank);
  if (told != kNcclSuccess) return told;
  MOE_CHECK(flags == kNcclWindowSymmetric);
  MOE_CHECK(reinterpret_cast<std::uintptr_t>(buffer) % kNcclWindowAlignment == 0);
  MOE_CHECK(size % kNcclWindowAlignment == 0);
  Group& group = fake.groups[comm->group];
  const auto [place, is_first] = group.window_sizes.emplace(comm->window_sizes.size(), size);
  fake.has_uneven_windows = fake.has_uneven_windows || (!is_first && place->second != size);
  comm->window_sizes.push_back(size);
  *window = new NcclWindow{size};
  ++fake.num_left;
  return kNcclSuccess;
}

int window_deregister(NcclComm*, NcclWindow* window) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  --fake.num_left;
  delete window;
  return kNcclSuccess;
}

int runtime_get_version(int* version) {
  *version = 13000;
  return kCudaSuccess;
}

int driver_get_version(int* version) {
  *version = state().behaviour.driver_version;
  return kCudaSuccess;
}

int get_device_count(int* count) {
  const FakeBehaviour& behaviour = state().behaviour;
  // The real one leaves the count alone when it fails.
  if (behaviour.device_error == kCudaSuccess) *count = behaviour.num_devices;
  return behaviour.device_error;
}

int set_device(int device) {
  if (device < 0 || device >= state().behaviour.num_devices) return 101;
  current_device = device;
  return kCudaSuccess;
}

int pci_bus_id(char* text, int length, int device) {
  (void)std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", 16 + device);
  return kCudaSuccess;
}

const char* error_name(int error) {
  return error == kCudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver" : "cudaErrorOther";
}

const char* error_string(int) {
  return "some error of CUDA";
}

int memcpy_async(void* target, const void* source, std::size_t size, int kind,
                 CudaStreamObject* stream) {
  MOE_CHECK(kind == kCudaMemcpyDefault && stream != nullptr);
  std::memcpy(target, source, size);
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  return fake.count("cudaMemcpyAsync", current_device);
}

int stream_create(CudaStreamObject** stream, unsigned int flags) {
  MOE_CHECK(flags == kCudaStreamNonBlocking);
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  ++fake.num_left;
  *stream = new CudaStreamObject;
  return fake.count("cudaStreamCreateWithFlags", current_device);
}

int stream_destroy(CudaStreamObject* stream) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  --fake.num_left;
  delete stream;
  return kCudaSuccess;
}

int stream_query(CudaStreamObject* stream) {
  FakeNccl::State& fake = state();
  const std::lock_guard lock(fake.mutex);
  return stream->num_pending > 0 ? kCudaErrorNotReady : kCudaSuccess;
}

}  // namespace

FakeNccl::FakeNccl(FakeBehaviour behaviour)
    : state_(std::make_unique<State>(std::move(behaviour))) {
  State* none = nullptr;
  MOE_CHECK(current.compare_exchange_strong(none, state_.get()));
}

FakeNccl::~FakeNccl() {
  current.store(nullptr);
}

NcclLibraries FakeNccl::libraries() const {
  NcclLibraries libraries;
  const FakeBehaviour& behaviour = state_->behaviour;
  libraries.nccl = {get_version,
                    get_unique_id,
                    get_error_string,
                    get_last_error,
                    comm_init,
                    comm_get_async_error,
                    comm_finalize,
                    comm_destroy,
                    comm_abort,
                    group_start,
                    group_end,
                    send,
                    recv,
                    all_reduce,
                    all_gather,
                    reduce_scatter,
                    behaviour.has_all_to_all ? all_to_all : nullptr,
                    behaviour.has_windows ? mem_alloc : nullptr,
                    behaviour.has_windows ? release : nullptr,
                    behaviour.has_windows ? window_register : nullptr,
                    behaviour.has_windows ? window_deregister : nullptr};
  libraries.cuda = {
      runtime_get_version, driver_get_version, get_device_count, set_device, pci_bus_id,
      error_name,          error_string,       cuda_malloc,      release,    memcpy_async,
      stream_create,       stream_destroy,     stream_query};
  libraries.num_devices = behaviour.num_devices;
  libraries.nccl_version = behaviour.has_all_to_all ? "2.28.9" : "2.27.3";
  libraries.cuda_runtime_version = "13.0";
  libraries.cuda_driver_version = "13.0";
  return libraries;
}

std::int64_t FakeNccl::num_calls(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(name);
  return found == state_->calls.end() ? 0 : found->second;
}

std::int64_t FakeNccl::num_left() const {
  const std::lock_guard lock(state_->mutex);
  return state_->num_left;
}

std::int64_t FakeNccl::num_aborted() const {
  const std::lock_guard lock(state_->mutex);
  return state_->num_aborted;
}

bool FakeNccl::has_uneven_windows() const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_uneven_windows;
}

}  // namespace moe::comm::test
