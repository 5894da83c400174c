#include "lib/engine/pack_part.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/int_math.hpp"
#include "lib/model/coded_matrix.hpp"

namespace moe::engine {
namespace {

using kernels::kPanelRows;
using kernels::WeightFormat;
using model::MatrixEncoding;
using model::MatrixView;

kernels::BlockFormat block_of(const model::CodedFormat& format) {
  kernels::BlockFormat block;
  block.scale = format.scale_dtype == model::Dtype::kF32   ? kernels::ScaleFormat::kF32
                : format.scale_dtype == model::Dtype::kF16 ? kernels::ScaleFormat::kF16
                : format.scale_dtype == model::Dtype::kI8  ? kernels::ScaleFormat::kTwoLevel
                                                           : kernels::ScaleFormat::kBf16;
  switch (format.offset) {
    case model::CodeOffset::kCentred:
      block.offset = kernels::OffsetKind::kCentred;
      break;
    case model::CodeOffset::kZeroPoints:
      block.offset = kernels::OffsetKind::kZeroPoints;
      break;
    case model::CodeOffset::kTwoLevel:
      block.offset = kernels::OffsetKind::kTwoLevel;
      break;
  }
  return block;
}

std::int64_t element_bytes(const MatrixView& view) {
  return view.encoding == MatrixEncoding::kPlain ? model::dtype_bits(view.dtype) / 8 : 1;
}

// The slice as the packer's source, in its stored format.
kernels::SourceMatrix source_of(const MatrixSlice& slice) {
  const MatrixView& view = *slice.view;
  kernels::SourceMatrix source;
  source.format = natural_format(view);
  source.rows = slice.rows();
  source.cols = slice.cols();
  source.data = view.data + slice.row_begin * view.row_stride * element_bytes(view);
  source.row_stride = slice.is_transposed ? view.col_stride : view.row_stride;
  source.col_stride = slice.is_transposed ? view.row_stride : view.col_stride;
  source.scale_row_stride = view.scale_row_stride;
  source.block_rows = view.block_rows;
  source.block_cols = view.block_cols;
  if (view.encoding == MatrixEncoding::kFp8Block) {
    source.scales = reinterpret_cast<const std::byte*>(view.fp8_scales) +
                    slice.row_begin / view.block_rows * view.scale_row_stride *
                        static_cast<std::int64_t>(sizeof(float));
  } else if (view.encoding == MatrixEncoding::kMxfp4) {
    source.scales = view.mxfp4_scales + slice.row_begin * view.scale_row_stride;
  }
  return source;
}

// Rows [begin, begin + count) of the view in f32, one after another.
std::vector<float> read_rows(const MatrixView& view, std::int64_t begin, std::int64_t count) {
  std::vector<float> rows(static_cast<std::size_t>(count * view.cols));
  for (std::int64_t row = 0; row < count; ++row) {
    model::read_matrix_row(view, begin + row, rows.data() + row * view.cols);
  }
  return rows;
}

// Packs panels [begin, end) of the slice in f32; panel p goes to out + (p - begin) * stride.
void pack_widened(const MatrixSlice& slice, std::int64_t begin, std::int64_t end,
                  std::int64_t stride, std::byte* out) {
  kernels::SourceMatrix source;
  source.format = WeightFormat::kF32;
  source.cols = slice.cols();
  if (slice.is_transposed) {
    // All rows of the slice are needed for any panel.
    const std::vector<float> rows = read_rows(*slice.view, slice.row_begin, slice.num_rows);
    source.rows = slice.rows();
    source.data = reinterpret_cast<const std::byte*>(rows.data());
    source.row_stride = 1;
    source.col_stride = slice.view->cols;
    for (std::int64_t p = begin; p < end; ++p) {
      kernels::pack_panel(source, p, out + (p - begin) * stride);
    }
    return;
  }
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t count = std::min(kPanelRows, slice.num_rows - p * kPanelRows);
    const std::vector<float> rows = read_rows(*slice.view, slice.row_begin + p * kPanelRows, count);
    source.rows = count;
    source.data = reinterpret_cast<const std::byte*>(rows.data());
    source.row_stride = slice.view->cols;
    kernels::pack_panel(source, 0, out + (p - begin) * stride);
  }
}

template <typename Word>
bool all_finite(const std::byte* bytes, std::int64_t num_bytes, Word exponent_mask) {
  Word found = 0;
  const std::int64_t count = num_bytes / static_cast<std::int64_t>(sizeof(Word));
  for (std::int64_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, bytes + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
    found = static_cast<Word>(found | ((word & exponent_mask) == exponent_mask ? 1 : 0));
  }
  return found == 0;
}

template <typename Word>
bool all_finite(const std::vector<std::byte>& bytes, Word exponent_mask) {
  return all_finite<Word>(bytes.data(), static_cast<std::int64_t>(bytes.size()), exponent_mask);
}

// No NaN among the fp8 values of 16 rows (the format has no infinity).
bool fp8_rows_are_finite(const kernels::SourceMatrix& source, std::int64_t panel_idx) {
  const std::int64_t end = std::min(source.rows, (panel_idx + 1) * kPanelRows);
  bool finite = true;
  for (std::int64_t row = panel_idx * kPanelRows; row < end; ++row) {
    const std::byte* values = source.data + row * source.row_stride;
    for (std::int64_t col = 0; col < source.cols; ++col) {
      finite &= (std::to_integer<int>(values[col * source.col_stride]) & 0x7f) != 0x7f;
    }
  }
  return finite;
}

// A packed panel holds the elements as they are stored, so an exponent of all ones is an element
// that is not finite. Scales of quantised formats were checked when the checkpoint was bound.
bool panel_is_finite(WeightFormat format, const std::byte* panel, std::int64_t num_bytes) {
  switch (format) {
    case WeightFormat::kF32:
      return all_finite<std::uint32_t>(panel, num_bytes, 0x7f800000U);
    case WeightFormat::kF16:
      return all_finite<std::uint16_t>(panel, num_bytes, 0x7c00U);
    case WeightFormat::kBf16:
      return all_finite<std::uint16_t>(panel, num_bytes, 0x7f80U);
    case WeightFormat::kFp8:    // checked at the source
    case WeightFormat::kMxfp4:  // every value is finite
    case WeightFormat::kInt8:   // checked with the scales
    case WeightFormat::kInt4:
      return true;
  }
  return true;
}

// Packs panel `panel_idx` of a slice whose stored form the packer does not read as it is: integer
// codes of any layout, and MXFP4 as GGUF has it. False: a scale is not finite.
bool pack_coded(const MatrixSlice& slice, std::int64_t panel_idx, std::byte* out) {
  const MatrixView& view = *slice.view;
  const std::int64_t first = slice.row_begin + panel_idx * kPanelRows;
  kernels::SourceMatrix source;
  source.format = natural_format(view);
  source.rows = std::min(kPanelRows, slice.num_rows - panel_idx * kPanelRows);
  source.cols = view.cols;
  model::CodedRows rows;
  const auto format = model::coded_format(view);
  if (!format) {
    model::read_mxfp4_rows(view, first, source.rows, rows.codes, rows.scales);
    source.row_stride = view.cols / 2;
    source.scale_row_stride = view.cols / kernels::kMxfp4Group;
  } else {
    model::read_coded_rows(view, first, source.rows, rows);
    source.row_stride = view.cols;
    source.block_cols = format->block_cols;
    source.scale_row_stride = div_ceil(view.cols, format->block_cols);
    source.block = block_of(*format);
    source.offsets = rows.offsets.data();
    source.super_scales = rows.super_scales.data();
    source.super_offsets = rows.super_offsets.data();
  }
  source.data = rows.codes.data();
  source.scales = rows.scales.data();
  kernels::pack_panel(source, 0, out);
  if (!format) {  // 255 is the NaN of block exponents
    return std::memchr(rows.scales.data(), 0xff, rows.scales.size()) == nullptr;
  }
  switch (source.block.scale) {
    case kernels::ScaleFormat::kF32:
      return all_finite<std::uint32_t>(rows.scales, 0x7f800000U);
    case kernels::ScaleFormat::kF16:
      return all_finite<std::uint16_t>(rows.scales, 0x7c00U);
    case kernels::ScaleFormat::kBf16:
      return all_finite<std::uint16_t>(rows.scales, 0x7f80U);
    case kernels::ScaleFormat::kTwoLevel:
      return all_finite<std::uint16_t>(rows.super_scales, 0x7c00U) &&
             all_finite<std::uint16_t>(rows.super_offsets, 0x7c00U);
  }
  return true;
}

// The kernels' packer reads these only through pack_coded().
bool is_coded(const MatrixView& view) {
  return view.encoding == MatrixEncoding::kGgufMxfp4 || model::coded_format(view).has_value();
}

// Where the bytes of a slice lie.
struct Extent {
  const std::byte* begin;
  std::int64_t num_bytes;
};

Extent extent_of(const MatrixSlice& slice) {
  const MatrixView& view = *slice.view;
  if (model::has_byte_rows(view.encoding)) {
    return {view.data + slice.row_begin * view.row_stride, slice.num_rows * view.row_stride};
  }
  if (view.encoding == MatrixEncoding::kGptq || view.encoding == MatrixEncoding::kAwq) {
    return {view.data, view.rows * view.cols * view.code_bits / 8};
  }
  const std::int64_t bytes = element_bytes(view);
  return {view.data + slice.row_begin * view.row_stride * bytes,
          ((slice.num_rows - 1) * view.row_stride + (view.cols - 1) * view.col_stride + 1) * bytes};
}

}  // namespace

std::int64_t packed_block_cols(const MatrixView& view) {
  if (const auto format = model::coded_format(view)) return format->block_cols;
  return view.encoding == MatrixEncoding::kFp8Block ? view.block_cols : 0;
}

bool cuts_blocks(const MatrixSlice& slice) {
  if (slice.view->encoding == MatrixEncoding::kPlain) return false;
  if (slice.is_transposed) return true;
  if (slice.view->column_order != nullptr &&
      packed_block_cols(*slice.view) > kernels::kMaxOrderedBlockCols) {
    return true;
  }
  return slice.view->encoding == MatrixEncoding::kFp8Block &&
         slice.row_begin % slice.view->block_rows != 0;
}

kernels::BlockFormat block_format(const MatrixView& view) {
  const auto format = model::coded_format(view);
  return format ? block_of(*format) : kernels::BlockFormat{};
}

PartPacker::PartPacker(const MatrixSlice& slice, WeightFormat format, std::int64_t panel_bytes,
                       std::byte* out, std::int64_t step)
    : slice_(&slice),
      format_(format),
      panel_bytes_(panel_bytes),
      out_(out),
      step_(step),
      num_panels_(div_ceil(slice.rows(), kPanelRows)),
      is_widened_(cuts_blocks(slice) || format != natural_format(*slice.view)),
      is_coded_(!is_widened_ && is_coded(*slice.view)) {
  if (!is_widened_ && !is_coded_) source_ = source_of(slice);
}

bool PartPacker::pack(std::int64_t begin, std::int64_t end) const {
  bool good = true;
  if (is_widened_) pack_widened(*slice_, begin, end, step_, out_ + begin * step_);
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::byte* const panel_out = out_ + panel * step_;
    if (is_coded_) {
      good = pack_coded(*slice_, panel, panel_out) && good;
    } else if (!is_widened_) {
      kernels::pack_panel(source_, panel, panel_out);
    }
    if (format_ == WeightFormat::kFp8) good = fp8_rows_are_finite(source_, panel) && good;
    good = panel_is_finite(format_, panel_out, panel_bytes_) && good;
  }
  return good;
}

void drop_pages(const MatrixSlice& slice, bool from_cache) {
  const auto [begin, extent] = extent_of(slice);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const std::uintptr_t last =
      (reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(extent)) / page * page;
  if (last <= first) return;
  auto* const pages = reinterpret_cast<void*>(first);
#if defined(MADV_PAGEOUT)
  if (from_cache) ::madvise(pages, last - first, MADV_PAGEOUT);
#else
  static_cast<void>(from_cache);
#endif
  ::madvise(pages, last - first, MADV_DONTNEED);
}

}  // namespace moe::engine
