#pragma once

// What every step of a forward pass needs: threads, kernels, the numeric mode, and the counters.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/engine/engine.hpp"

namespace moe::engine {

// A range of one call's outputs and rows; see gemm.cpp.
struct WorkItem {
  std::int32_t call = 0;
  std::int32_t unit_begin = 0;
  std::int32_t unit_end = 0;
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
};

struct Exec {
  ThreadPool* pool = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  MoePath moe_path = MoePath::kFused;
  ForwardStats* stats = nullptr;
  TensorObserver* tensor_observer = nullptr;
  RoutingObserver* routing_observer = nullptr;
  std::vector<WorkItem> items;  // scratch of the scheduler, reserved once
};

// Whether products with this matrix read activations rounded to bf16.
[[nodiscard]] inline bool reads_bf16(const Exec& exec, const kernels::PackedMatrix& weight) {
  return exec.activations == kernels::ActivationFormat::kBf16 &&
         kernels::takes_bf16(*exec.kernels, weight.format);
}

// Whether products with this matrix read activations as int8 codes.
[[nodiscard]] inline bool reads_int8(const Exec& exec, const kernels::PackedMatrix& weight) {
  return exec.activations == kernels::ActivationFormat::kInt8 && weight.cols > 0 &&
         kernels::takes_int8(weight);
}

// Adds the wall time of a scope to one stage.
class StageTimer {
 public:
  StageTimer(Exec& exec, Stage stage)
      : seconds_(exec.stats->stage_s[static_cast<std::size_t>(stage)]), begin_s_(clock_.now_s()) {}
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;
  ~StageTimer() { seconds_ += clock_.now_s() - begin_s_; }

 private:
  SteadyClock clock_;
  double& seconds_;
  double begin_s_;
};

// Calls body(row) for every row, on all threads when the rows carry enough work to pay for waking
// them. `row_floats` is roughly what one row reads and writes; `min_block` neighbouring rows go to
// one thread.
template <typename Body>
void for_each_row(Exec& exec, std::int64_t num_rows, std::int64_t row_floats, Body&& body,
                  std::int64_t min_block = 1) {
  constexpr std::int64_t kSerialFloats = 16384;
  constexpr std::int64_t kBlockFloats = 8192;
  if (exec.pool->num_threads() == 1 || num_rows * row_floats < kSerialFloats) {
    for (std::int64_t row = 0; row < num_rows; ++row) body(row);
    return;
  }
  const std::int64_t block = std::max(min_block, kBlockFloats / row_floats);
  exec.pool->for_each(div_ceil(num_rows, block), [&](std::int64_t index, int) {
    const std::int64_t end = std::min(num_rows, (index + 1) * block);
    for (std::int64_t row = index * block; row < end; ++row) body(row);
  });
}

}  // namespace moe::engine
