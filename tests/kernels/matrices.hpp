#pragma once

// Random matrices in every weight format: the source as a checkpoint would hold it, the packed
// panels, and the values as plain doubles.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/base/rng.hpp"

namespace moe::kernels {

inline constexpr WeightFormat kAllFormats[] = {
    WeightFormat::kF32,   WeightFormat::kF16,  WeightFormat::kBf16, WeightFormat::kFp8,
    WeightFormat::kMxfp4, WeightFormat::kInt8, WeightFormat::kInt4};

[[nodiscard]] std::string format_name(WeightFormat format);

[[nodiscard]] std::vector<float> random_floats(Rng& rng, std::int64_t count);

struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t fp8_block_rows = 16;
  std::int64_t fp8_block_cols = 128;  // also of int8 and int4
  BlockFormat block{};                // int8, int4
  bool has_column_order = false;      // int8, int4
  std::int64_t row_padding = 0;  // elements between the end of a row and the next (bytes: mxfp4)
  std::int64_t col_stride = 1;
};

class TestMatrix {
 public:
  TestMatrix(WeightFormat format, const MatrixShape& shape, Rng& rng);

  // Gate rows and up rows as gemm_gate_up wants them: panels by turns.
  static PackedMatrix interleave(const TestMatrix& gate, const TestMatrix& up,
                                 AlignedBytes* storage);

  [[nodiscard]] const SourceMatrix& source() const { return source_; }
  [[nodiscard]] const PackedMatrix& packed() const { return packed_; }
  [[nodiscard]] double value(std::int64_t row, std::int64_t col) const {
    return values_[static_cast<std::size_t>(row * source_.cols + col)];
  }
  [[nodiscard]] std::int64_t num_panels() const { return (source_.rows + 15) / 16; }
  // Sum of w x and of |w x| over the columns.
  [[nodiscard]] double product(std::int64_t row, const float* x, double* magnitude) const;

 private:
  void fill(const MatrixShape& shape, Rng& rng);
  void fill_blocks(const MatrixShape& shape, Rng& rng);
  // Writes the scale and the offset of the block that begins at `col`.
  struct BlockTerms {
    double scale;
    double offset;
  };
  BlockTerms put_terms(std::int64_t row, std::int64_t col, Rng& rng);
  BlockTerms put_two_levels(std::int64_t row, std::int64_t col, std::int64_t idx, Rng& rng);

  std::vector<std::byte> data_;
  std::vector<std::byte> scales_;
  std::vector<double> values_;
  std::vector<double> magnitudes_;  // what sums to the products of an element; empty: |value|
  std::vector<std::byte> offsets_;
  std::vector<std::byte> super_scales_;
  std::vector<std::byte> super_offsets_;
  std::vector<std::int32_t> column_order_;
  AlignedBytes panels_;
  SourceMatrix source_;
  PackedMatrix packed_;
};

// `blocks`, and two-level scales where the columns allow them.
[[nodiscard]] std::vector<BlockFormat> with_two_levels(std::vector<BlockFormat> blocks,
                                                       const MatrixShape& shape);

}  // namespace moe::kernels
