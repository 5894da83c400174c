#include "lib/engine/pack_plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/coded_matrix.hpp"

namespace moe::engine {
namespace {

using kernels::kPanelRows;
using kernels::WeightFormat;
using model::MatrixEncoding;
using model::MatrixView;

constexpr std::int64_t kMatrixAlignment = 64;

kernels::BlockFormat block_format(const model::CodedFormat& format) {
  kernels::BlockFormat block;
  block.scale = format.scale_dtype == model::Dtype::kF32   ? kernels::ScaleFormat::kF32
                : format.scale_dtype == model::Dtype::kF16 ? kernels::ScaleFormat::kF16
                                                           : kernels::ScaleFormat::kBf16;
  switch (format.offset) {
    case model::CodeOffset::kCentred:
      block.offset = kernels::OffsetKind::kCentred;
      break;
    case model::CodeOffset::kZeroPoints:
      block.offset = kernels::OffsetKind::kZeroPoints;
      break;
    case model::CodeOffset::kF32:
      block.offset = kernels::OffsetKind::kF32;
      break;
  }
  return block;
}

// Columns of a block in the packed format; 0: the format has none, or always the same.
std::int64_t packed_block_cols(const MatrixView& view) {
  if (const auto format = model::coded_format(view)) return format->block_cols;
  return view.encoding == MatrixEncoding::kFp8Block ? view.block_cols : 0;
}

bool have_one_order(const MatrixView& a, const MatrixView& b) {
  if ((a.column_order == nullptr) != (b.column_order == nullptr)) return false;
  return a.column_order == nullptr ||
         std::equal(a.column_order, a.column_order + a.cols, b.column_order);
}

// A slice that the kernels' packer cannot address in the stored format.
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

bool have_one_format(const std::vector<MatrixSlice>& parts) {
  const MatrixView& first = *parts.front().view;
  for (const MatrixSlice& part : parts) {
    if (cuts_blocks(part)) return false;
    if (natural_format(*part.view) != natural_format(first)) return false;
    if (packed_block_cols(*part.view) != packed_block_cols(first)) return false;
    if (model::coded_format(*part.view) != model::coded_format(first)) return false;
    if (!have_one_order(*part.view, first)) return false;
  }
  return true;
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
    source.block = block_format(*format);
    source.offsets = rows.offsets.data();
  }
  source.data = rows.codes.data();
  source.scales = rows.scales.data();
  kernels::pack_panel(source, 0, out);
  const auto num_bytes = static_cast<std::int64_t>(rows.scales.size());
  if (!format) {  // 255 is the NaN of block exponents
    return std::memchr(rows.scales.data(), 0xff, rows.scales.size()) == nullptr;
  }
  if (source.block.offset == kernels::OffsetKind::kF32 &&
      !all_finite<std::uint32_t>(rows.offsets.data(),
                                 static_cast<std::int64_t>(rows.offsets.size()), 0x7f800000U)) {
    return false;
  }
  switch (source.block.scale) {
    case kernels::ScaleFormat::kF32:
      return all_finite<std::uint32_t>(rows.scales.data(), num_bytes, 0x7f800000U);
    case kernels::ScaleFormat::kF16:
      return all_finite<std::uint16_t>(rows.scales.data(), num_bytes, 0x7c00U);
    case kernels::ScaleFormat::kBf16:
      return all_finite<std::uint16_t>(rows.scales.data(), num_bytes, 0x7f80U);
  }
  return true;
}

// The packer reads these only through pack_coded().
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

// Gives the whole pages of the slice's extent back to the system. The pages are clean pages of a
// file: they are read again if somebody needs them.
void drop_pages(const MatrixSlice& slice) {
  const auto [begin, extent] = extent_of(slice);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const std::uintptr_t last =
      (reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(extent)) / page * page;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

WeightFormat natural_format(const MatrixView& view) {
  if (const auto format = model::coded_format(view)) {
    return format->bits == 4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
  }
  if (view.encoding == MatrixEncoding::kFp8Block) return WeightFormat::kFp8;
  if (view.encoding == MatrixEncoding::kMxfp4 || view.encoding == MatrixEncoding::kGgufMxfp4) {
    return WeightFormat::kMxfp4;
  }
  MOE_CHECK(view.encoding == MatrixEncoding::kPlain);
  if (view.dtype == model::Dtype::kF16) return WeightFormat::kF16;
  if (view.dtype == model::Dtype::kBf16) return WeightFormat::kBf16;
  MOE_CHECK(view.dtype == model::Dtype::kF32);
  return WeightFormat::kF32;
}

MatrixSlice whole(const MatrixView& view) {
  return {&view, 0, view.rows, false};
}

MatrixSlice first_rows(const MatrixView& view, std::int64_t num_rows) {
  MOE_CHECK(num_rows <= view.rows);
  return {&view, 0, num_rows, false};
}

std::int64_t padded_rows(std::int64_t rows) {
  return align_up(rows, kPanelRows);
}

std::int64_t packed_bytes(const kernels::PackedMatrix& matrix) {
  return div_ceil(matrix.rows, kPanelRows) * matrix.panel_stride_bytes;
}

void PackPlan::add(std::vector<MatrixSlice> parts, PackOrder order, kernels::PackedMatrix* target) {
  const bool as_f32 = !have_one_format(parts);
  add_task(std::move(parts), order, as_f32, target);
}

void PackPlan::add_f32(std::vector<MatrixSlice> parts, kernels::PackedMatrix* target) {
  add_task(std::move(parts), PackOrder::kSequential, true, target);
}

void PackPlan::add_task(std::vector<MatrixSlice> parts, PackOrder order, bool as_f32,
                        kernels::PackedMatrix* target) {
  const MatrixView& view = *parts.front().view;
  const std::int64_t cols = parts.front().cols();
  std::int64_t rows = 0;
  for (const MatrixSlice& part : parts) {
    MOE_CHECK(part.cols() == cols && part.row_begin + part.num_rows <= part.view->rows);
    rows += padded_rows(part.rows());
  }
  if (order == PackOrder::kInterleaved) {
    MOE_CHECK(parts.size() == 2 && parts[0].rows() == parts[1].rows());
  } else if (parts.size() == 1) {
    rows = parts.front().rows();
  }
  target->data = nullptr;
  target->format = as_f32 ? WeightFormat::kF32 : natural_format(view);
  target->rows = rows;
  target->cols = cols;
  target->block_cols = as_f32 ? 0 : packed_block_cols(view);
  const auto coded = as_f32 ? std::nullopt : model::coded_format(view);
  target->block = coded ? block_format(*coded) : kernels::BlockFormat{};
  target->column_order = nullptr;
  target->panel_stride_bytes =
      kernels::panel_bytes(target->format, cols, target->block_cols, target->block);
  Task task;
  task.order = order;
  task.target = target;
  task.offset = align_up(total_bytes_, kMatrixAlignment);
  total_bytes_ = task.offset + packed_bytes(*target);
  if (coded && view.column_order != nullptr) {
    task.order_offset = total_bytes_;
    total_bytes_ += cols * static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  task.parts = std::move(parts);
  tasks_.push_back(std::move(task));
}

// False: a value is not finite.
bool PackPlan::pack_task(const Task& task, ThreadPool& pool, std::byte* out) {
  const kernels::PackedMatrix& target = *task.target;
  const std::int64_t stride = target.panel_stride_bytes;
  std::atomic<bool> finite{true};
  std::int64_t first_panel = 0;
  for (std::size_t part_idx = 0; part_idx < task.parts.size(); ++part_idx) {
    const MatrixSlice& part = task.parts[part_idx];
    const std::int64_t num_panels = div_ceil(part.rows(), kPanelRows);
    const bool interleaved = task.order == PackOrder::kInterleaved;
    const std::int64_t step = interleaved ? 2 * stride : stride;
    std::byte* const part_out =
        out + (interleaved ? static_cast<std::int64_t>(part_idx) : first_panel) * stride;
    const bool widened = cuts_blocks(part) || target.format != natural_format(*part.view);
    const bool at_once = widened && part.is_transposed;
    const bool coded = !widened && is_coded(*part.view);
    const kernels::SourceMatrix source =
        widened || coded ? kernels::SourceMatrix{} : source_of(part);
    pool.for_each(at_once ? 1 : num_panels, [&](std::int64_t index, int) {
      const std::int64_t begin = at_once ? 0 : index;
      const std::int64_t end = at_once ? num_panels : index + 1;
      bool good = true;
      if (widened) {
        pack_widened(part, begin, end, step, part_out + begin * step);
      } else if (coded) {
        good = pack_coded(part, index, part_out + index * step);
      } else {
        kernels::pack_panel(source, index, part_out + index * step);
      }
      if (target.format == WeightFormat::kFp8) good = fp8_rows_are_finite(source, index);
      for (std::int64_t p = begin; p < end; ++p) {
        good = good && panel_is_finite(target.format, part_out + p * step, stride);
      }
      if (!good) finite.store(false, std::memory_order_relaxed);
    });
    first_panel += num_panels;
  }
  return finite.load();
}

AlignedBytes PackPlan::execute(ThreadPool& pool, bool drop_source_pages, Progress& progress,
                               const Interrupt& interrupt) const {
  AlignedBytes block(total_bytes_);
  progress.begin("packing weights", total_bytes_, "B");
  for (const Task& task : tasks_) {
    if (interrupt.requested()) {
      throw Error(ErrorCode::kRuntime, "interrupted while packing the weights");
    }
    std::byte* const out = block.data() + task.offset;
    if (!pack_task(task, pool, out)) {
      std::string names;
      for (const MatrixSlice& part : task.parts) {
        names += (names.empty() ? "" : ", ") + part.view->name;
      }
      throw Error(ErrorCode::kInput,
                  fmt::format("expected finite weights, found NaN or infinity in {}; the "
                              "checkpoint is damaged, download or convert it again",
                              names));
    }
    task.target->data = out;
    if (task.order_offset >= 0) {
      // Panels are whole cache lines: the order is aligned.
      auto* const column_order = reinterpret_cast<std::int32_t*>(block.data() + task.order_offset);
      std::copy_n(task.parts.front().view->column_order, task.target->cols, column_order);
      task.target->column_order = column_order;
    }
    if (drop_source_pages) {
      for (const MatrixSlice& part : task.parts) drop_pages(part);
    }
    progress.update(task.offset + packed_bytes(*task.target));
  }
  progress.end();
  return block;
}

}  // namespace moe::engine
