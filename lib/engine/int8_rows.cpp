#include "lib/engine/int8_rows.hpp"

#include <algorithm>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::engine {
namespace {

// Rows begin at cache lines.
std::int64_t row_stride(const kernels::PackedMatrix& weight) {
  return align_up(kernels::int8_row_elements(weight.cols, kernels::int8_block_cols(weight)), 64);
}

std::int64_t blocks_of_row(const kernels::PackedMatrix& weight) {
  return div_ceil(weight.cols, kernels::int8_block_cols(weight));
}

}  // namespace

bool Int8Rows::fit(const kernels::PackedMatrix& weight) const {
  return codes != nullptr && cols == weight.cols && block_cols == kernels::int8_block_cols(weight);
}

Int8Rows Int8Rows::from(std::int64_t row) const {
  Int8Rows rest = *this;
  if (codes == nullptr) return rest;
  rest.codes += row * stride;
  rest.scales += row * num_blocks;
  rest.sums += row * num_blocks;
  return rest;
}

void Int8Rows::quantize(const kernels::KernelTable& kernels, std::int64_t row,
                        const float* x) const {
  const Int8Rows out = from(row);
  kernels.quantize_row({.x = x,
                        .cols = cols,
                        .block_cols = block_cols,
                        .codes = out.codes,
                        .scales = out.scales,
                        .sums = out.sums});
}

void Int8Buffer::RowSize::cover(const kernels::PackedMatrix& weight) {
  if (weight.cols == 0 || !kernels::takes_int8(weight)) return;
  codes = std::max(codes, row_stride(weight));
  blocks = std::max(blocks, blocks_of_row(weight));
}

Int8Buffer::Int8Buffer(std::int64_t rows, const RowSize& row)
    : codes_(rows * row.codes), scales_(rows * row.blocks), sums_(rows * row.blocks) {}

Int8Rows Int8Buffer::take(std::int64_t rows, const kernels::PackedMatrix& weight) {
  Int8Rows out;
  out.stride = row_stride(weight);
  out.num_blocks = blocks_of_row(weight);
  out.cols = weight.cols;
  out.block_cols = kernels::int8_block_cols(weight);
  out.codes = codes_.data() + codes_used_;
  out.scales = scales_.data() + blocks_used_;
  out.sums = sums_.data() + blocks_used_;
  codes_used_ += rows * out.stride;
  blocks_used_ += rows * out.num_blocks;
  MOE_CHECK(codes_used_ <= codes_.size() && blocks_used_ <= scales_.size());
  return out;
}

}  // namespace moe::engine
