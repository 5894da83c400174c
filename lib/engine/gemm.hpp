#pragma once

// Products of packed matrices with rows of activations, split over the threads.

#include <cstdint>
#include <span>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/engine/exec.hpp"
#include "lib/engine/int8_rows.hpp"

namespace moe::engine {

// Rows of activations in f32 and, in the modes that round and for the products that take it,
// rounded.
struct Activations {
  const float* f32 = nullptr;
  const std::uint16_t* bf16 = nullptr;
  std::int64_t stride = 0;  // elements, of both
  Int8Rows int8{};

  // Other columns: int8 codes, which belong to whole rows, are left behind.
  [[nodiscard]] Activations at(std::int64_t offset) const {
    return {f32 + offset, bf16 == nullptr ? nullptr : bf16 + offset, stride};
  }
  [[nodiscard]] Activations from_row(std::int64_t row) const {
    Activations rest = at(row * stride);
    rest.int8 = int8.from(row);
    return rest;
  }
};

// The memory behind Activations. The stride is a whole number of cache lines in both formats, and
// its padding is zero: kernels may read an odd last column in pairs.
class ActivationBuffer {
 public:
  ActivationBuffer() = default;
  ActivationBuffer(std::int64_t rows, std::int64_t cols, bool has_bf16);

  [[nodiscard]] float* f32(std::int64_t row) { return f32_.data() + row * stride_; }
  [[nodiscard]] std::uint16_t* bf16(std::int64_t row) { return bf16_.data() + row * stride_; }
  [[nodiscard]] bool has_bf16() const { return bf16_.size() > 0; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  [[nodiscard]] Activations view() const {
    return {f32_.data(), has_bf16() ? bf16_.data() : nullptr, stride_};
  }
  // Rounds `count` elements of a row from `begin` on into the bf16 copy, where there is one.
  void round(const kernels::KernelTable& kernels, std::int64_t row, std::int64_t begin,
             std::int64_t count) {
    if (has_bf16()) kernels.f32_to_bf16(f32(row) + begin, count, bf16(row) + begin);
  }

  [[nodiscard]] static std::int64_t padded_cols(std::int64_t cols);
  [[nodiscard]] static std::int64_t bytes(std::int64_t rows, std::int64_t cols, bool has_bf16);

 private:
  AlignedBuffer<float> f32_;
  AlignedBuffer<std::uint16_t> bf16_;
  std::int64_t stride_ = 0;
};

// y[i][r] = W x_i + bias. Reads the bf16 or int8 activations where the mode and the weights allow
// it and there are any.
struct LinearCall {
  const kernels::PackedMatrix* weight = nullptr;
  Activations x;
  const std::int32_t* x_rows = nullptr;  // null: row i reads x row i
  std::int64_t num_rows = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

// h[i] = glu(gate x_i, up x_i). Reads `activations` and writes bf16 where these are, else f32.
struct GateUpCall {
  const kernels::PackedMatrix* weight = nullptr;
  Activations x;
  const std::int32_t* x_rows = nullptr;
  std::int64_t num_rows = 0;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  kernels::GluKind glu = kernels::GluKind::kSilu;
  float limit = 0.0F;
  float alpha = 0.0F;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  float* h_f32 = nullptr;  // one of the two
  std::uint16_t* h_bf16 = nullptr;
  std::int64_t h_stride = 0;
  std::int64_t intermediate = 0;
};

// `x` with the int8 codes of its first `num_rows` rows, where the mode is int8 and the matrix takes
// it. The codes stay in `buffer`, which is cleared first.
[[nodiscard]] Activations with_int8(Exec& exec, const kernels::PackedMatrix& weight,
                                    const Activations& x, std::int64_t num_rows,
                                    Int8Buffer& buffer);

// One parallel region for all calls together. Calls with no rows are allowed.
void run_linear(Exec& exec, std::span<const LinearCall> calls);
void run_gate_up(Exec& exec, std::span<const GateUpCall> calls);

// Upper bound of the scheduler's work items, to reserve Exec::items.
[[nodiscard]] std::int64_t max_work_items(int num_threads, std::int64_t max_calls,
                                          std::int64_t max_total_rows);

}  // namespace moe::engine
