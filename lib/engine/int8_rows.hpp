#pragma once

// Rows of activations as int8 codes, in blocks of the columns of the weights that read them.

#include <cstdint>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"

namespace moe::engine {

// Rows of an Int8Buffer; without codes: none.
struct Int8Rows {
  std::int8_t* codes = nullptr;
  float* scales = nullptr;
  std::int32_t* sums = nullptr;
  std::int64_t stride = 0;      // of codes, elements
  std::int64_t num_blocks = 0;  // of a row: stride of scales and sums
  std::int64_t cols = 0;
  std::int64_t block_cols = 0;

  // Whether they are cut as this matrix wants them.
  [[nodiscard]] bool fit(const kernels::PackedMatrix& weight) const;
  [[nodiscard]] Int8Rows from(std::int64_t row) const;
  void quantize(const kernels::KernelTable& kernels, std::int64_t row, const float* x) const;
};

// Memory for the rows of one product after another, or of several at once.
class Int8Buffer {
 public:
  // Of one row.
  struct RowSize {
    std::int64_t codes = 0;
    std::int64_t blocks = 0;

    // Grows to what a row for this matrix needs, if the matrix takes int8.
    void cover(const kernels::PackedMatrix& weight);
    [[nodiscard]] std::int64_t bytes() const { return codes + 8 * blocks; }
  };

  Int8Buffer() = default;
  Int8Buffer(std::int64_t rows, const RowSize& row);

  void clear() { codes_used_ = blocks_used_ = 0; }
  // Rows not used since clear(), for products with this matrix.
  [[nodiscard]] Int8Rows take(std::int64_t rows, const kernels::PackedMatrix& weight);

 private:
  AlignedBuffer<std::int8_t> codes_;
  AlignedBuffer<float> scales_;
  AlignedBuffer<std::int32_t> sums_;
  std::int64_t codes_used_ = 0;
  std::int64_t blocks_used_ = 0;
};

}  // namespace moe::engine
