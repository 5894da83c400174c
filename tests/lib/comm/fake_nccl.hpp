#pragma once

// A stand-in for NCCL and the CUDA runtime: ranks are threads, device memory is host memory, a
// stream is idle when nothing on it is left undone. It does what the real ones promise, and on
// request what they do when things go wrong. One at a time: the tables have no place for a pointer.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "lib/comm/nccl_load.hpp"

namespace moe::comm::test {

struct FakeBehaviour {
  int num_devices = 8;
  bool has_all_to_all = true;  // NCCL 2.28
  bool has_windows = true;     // NCCL 2.27
  int device_error = 0;        // of cudaGetDeviceCount
  int driver_version = 13000;
  std::set<std::pair<int, int>> hangs;     // sender, receiver: never ends
  std::set<std::pair<int, int>> corrupts;  // one byte of each transfer is flipped
  // Name of a call and rank -> what it returns. ncclGetUniqueId and the like have rank -1.
  std::map<std::pair<std::string, int>, int> fails;
  std::map<int, int> async_errors;  // by rank, once its first transfer was posted
  int init_hangs_at = -1;           // this rank never joins
};

class FakeNccl {
 public:
  explicit FakeNccl(FakeBehaviour behaviour = {});
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;
  ~FakeNccl();

  [[nodiscard]] NcclLibraries libraries() const;

  [[nodiscard]] std::int64_t num_calls(const std::string& name) const;
  // Things that were made and not taken away: memory, streams, communicators, windows.
  [[nodiscard]] std::int64_t num_left() const;
  [[nodiscard]] std::int64_t num_aborted() const;
  // Sizes of registered windows that differed between ranks.
  [[nodiscard]] bool has_uneven_windows() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace moe::comm::test
