#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/api.hpp"
#include "kernels/cpu/interleave.hpp"
#include "kernels/cpu/layout.hpp"

namespace moe::kernels {
namespace {

constexpr std::int64_t kPanelAlignment = 64;

// Rows of the source that panel `panel_idx` holds: 16, fewer in the last one.
std::int64_t rows_in_panel(const SourceMatrix& source, std::int64_t panel_idx) {
  return std::clamp<std::int64_t>(source.rows - panel_idx * kPanelRows, 0, kPanelRows);
}

// Columns that the fast path packs: of whole panels whose columns are neighbours in memory.
template <class Element>
std::int64_t pack_whole_rows(const SourceMatrix& source, std::int64_t panel_idx, std::int64_t group,
                             std::byte* out) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  if (rows_in_panel(source, panel_idx) < kPanelRows || source.col_stride != 1) {
    return 0;
  }
  const std::int64_t row_bytes = source.row_stride * kSize;
  const std::byte* in = source.data + panel_idx * kPanelRows * row_bytes;
  if (group * kSize == 4) {
    return group * interleave_words(in, row_bytes, source.cols / group, out);
  }
  return interleave_halves(in, row_bytes, source.cols, out);
}

// Columns outermost, `group` neighbouring columns of a row side by side.
template <class Element>
void pack_plain(const SourceMatrix& source, std::int64_t panel_idx, std::int64_t group,
                std::byte* out) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  const std::int64_t done = pack_whole_rows<Element>(source, panel_idx, group, out);
  const std::int64_t done_bytes = done * kPanelRows * kSize;
  const std::int64_t bytes = panel_bytes(source.format, source.cols, 0);
  std::fill_n(out + done_bytes, bytes - done_bytes, std::byte{0});
  const std::int64_t num_rows = rows_in_panel(source, panel_idx);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::byte* in = source.data + (panel_idx * kPanelRows + row) * source.row_stride * kSize;
    for (std::int64_t col = done; col < source.cols; ++col) {
      const std::int64_t at = (col / group * kPanelRows + row) * group + col % group;
      std::memcpy(out + at * kSize, in + col * source.col_stride * kSize, sizeof(Element));
    }
  }
}

float fp8_scale(const SourceMatrix& source, std::int64_t row, std::int64_t block) {
  float scale = 0.0F;
  const std::int64_t idx = row / source.block_rows * source.scale_row_stride + block;
  std::memcpy(&scale, source.scales + idx * static_cast<std::int64_t>(sizeof(float)),
              sizeof(float));
  return scale;
}

void pack_fp8(const SourceMatrix& source, std::int64_t panel_idx, std::byte* out) {
  const std::int64_t num_rows = rows_in_panel(source, panel_idx);
  for (std::int64_t begin = 0; begin < source.cols; begin += source.block_cols) {
    const std::int64_t block = begin / source.block_cols;
    const std::int64_t end = std::min(begin + source.block_cols, source.cols);
    std::byte* block_out = out + fp8_block_offset(block, source.block_cols);
    for (std::int64_t lane = 0; lane < num_rows; ++lane) {
      const std::int64_t row = panel_idx * kPanelRows + lane;
      float scale = fp8_scale(source, row, block);
      for (std::int64_t col = begin; col < end; ++col) {
        std::byte code = source.data[row * source.row_stride + col * source.col_stride];
        if ((code & std::byte{0x7f}) == std::byte{0x7f}) {
          code = std::byte{0};
          scale = std::numeric_limits<float>::quiet_NaN();
        }
        block_out[kFp8ScaleBytes + (col - begin) * kPanelRows + lane] = code;
      }
      std::memcpy(block_out + lane * static_cast<std::int64_t>(sizeof(float)), &scale,
                  sizeof(float));
    }
  }
}

void pack_mxfp4(const SourceMatrix& source, std::int64_t panel_idx, std::byte* out) {
  const std::int64_t num_rows = rows_in_panel(source, panel_idx);
  for (std::int64_t lane = 0; lane < num_rows; ++lane) {
    const std::int64_t row = panel_idx * kPanelRows + lane;
    const std::byte* in = source.data + row * source.row_stride;
    for (std::int64_t col = 0; col < source.cols; col += 2) {
      std::byte* group_out = out + col / kMxfp4Group * kMxfp4GroupBytes;
      if (col % kMxfp4Group == 0) {
        group_out[lane] = source.scales[row * source.scale_row_stride + col / kMxfp4Group];
      }
      std::byte pair = in[col / 2];
      if (col + 1 == source.cols) {
        pair &= std::byte{0x0f};
      }
      group_out[kPanelRows + col % kMxfp4Group / 2 * kPanelRows + lane] = pair;
    }
  }
}

void pack_int8_codes(const std::byte* codes, std::int64_t count, std::int64_t lane,
                     std::byte* out) {
  for (std::int64_t col = 0; col < count; col += kCodeBytes) {
    std::memcpy(out + code_place(WeightFormat::kInt8, col, lane).byte, codes + col,
                static_cast<std::size_t>(std::min(kCodeBytes, count - col)));
  }
}

void pack_int4_codes(const std::byte* codes, std::int64_t count, std::int64_t lane,
                     std::byte* out) {
  for (std::int64_t col = 0; col < count; ++col) {
    const CodePlace place = code_place(WeightFormat::kInt4, col, lane);
    out[place.byte] |= (codes[col] & std::byte{0x0f}) << place.shift;
  }
}

void pack_super_block_row(const SourceMatrix& source, std::int64_t row, std::int64_t lane,
                          std::int64_t idx, std::byte* out) {
  const std::int64_t at = row * (source.cols / kSuperBlockCols) + idx;
  std::memcpy(out + lane * 2, source.super_scales + at * 2, 2);
  if (source.block.offset == OffsetKind::kTwoLevel) {
    std::memcpy(out + (kPanelRows + lane) * 2, source.super_offsets + at * 2, 2);
  }
}

void pack_block_row(const SourceMatrix& source, std::int64_t row, std::int64_t lane,
                    std::int64_t idx, std::byte* out) {
  const std::int64_t scale_bytes = scales_bytes(source.block) / kPanelRows;
  const std::int64_t at = row * source.scale_row_stride + idx;
  std::memcpy(out + lane * scale_bytes, source.scales + at * scale_bytes,
              static_cast<std::size_t>(scale_bytes));
  std::byte* const offsets = out + scales_bytes(source.block);
  if (source.block.offset != OffsetKind::kCentred) {
    offsets[lane] = source.offsets[at];
  }
  std::byte* const codes_out = out + block_header_bytes(source.block);
  const std::byte* const codes = source.data + row * source.row_stride + idx * source.block_cols;
  const std::int64_t count = std::min(source.block_cols, source.cols - idx * source.block_cols);
  if (source.format == WeightFormat::kInt8) {
    pack_int8_codes(codes, count, lane, codes_out);
  } else {
    pack_int4_codes(codes, count, lane, codes_out);
  }
}

void pack_int(const SourceMatrix& source, std::int64_t panel_idx, std::byte* out) {
  const std::int64_t num_rows = rows_in_panel(source, panel_idx);
  const std::int64_t num_blocks = ceil_div(source.cols, source.block_cols);
  const BlockLayout layout = int_block_layout(source.format, source.block_cols, source.block);
  for (std::int64_t lane = 0; lane < num_rows; ++lane) {
    const std::int64_t row = panel_idx * kPanelRows + lane;
    for (std::int64_t idx = 0; idx < num_blocks; ++idx) {
      pack_block_row(source, row, lane, idx, out + layout.offset_of(idx));
      if (layout.super_bytes > 0 && idx % layout.super_blocks == 0) {
        pack_super_block_row(source, row, lane, idx / layout.super_blocks,
                             out + layout.offset_of(idx) - layout.super_bytes);
      }
    }
  }
}

std::int64_t used_panel_bytes(WeightFormat format, std::int64_t cols, std::int64_t block_cols,
                              BlockFormat block) {
  switch (format) {
    case WeightFormat::kF32:
      return cols * kPanelRows * 4;
    case WeightFormat::kF16:
      return cols * kPanelRows * 2;
    case WeightFormat::kBf16:
      return ceil_div(cols, 2) * kPanelRows * 4;
    case WeightFormat::kFp8:
      return ceil_div(cols, block_cols) * kFp8ScaleBytes + cols * kPanelRows;
    case WeightFormat::kMxfp4:
      return ceil_div(cols, kMxfp4Group) * kMxfp4GroupBytes;
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return int_block_layout(format, block_cols, block).bytes(ceil_div(cols, block_cols));
  }
  return 0;
}

}  // namespace

std::int64_t panel_bytes(WeightFormat format, std::int64_t cols, std::int64_t block_cols,
                         BlockFormat block) noexcept {
  return ceil_div(used_panel_bytes(format, cols, block_cols, block), kPanelAlignment) *
         kPanelAlignment;
}

void pack_panel(const SourceMatrix& source, std::int64_t panel_idx, std::byte* out) noexcept {
  switch (source.format) {
    case WeightFormat::kF32:
      return pack_plain<std::uint32_t>(source, panel_idx, 1, out);
    case WeightFormat::kF16:
      return pack_plain<std::uint16_t>(source, panel_idx, 1, out);
    case WeightFormat::kBf16:
      return pack_plain<std::uint16_t>(source, panel_idx, 2, out);
    case WeightFormat::kFp8:
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      break;
  }
  std::fill_n(out, panel_bytes(source.format, source.cols, source.block_cols, source.block),
              std::byte{0});
  if (source.format == WeightFormat::kFp8) {
    return pack_fp8(source, panel_idx, out);
  }
  if (source.format == WeightFormat::kMxfp4) {
    return pack_mxfp4(source, panel_idx, out);
  }
  pack_int(source, panel_idx, out);
}

}  // namespace moe::kernels
