#include "lib/engine/pack_plan.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/engine/pack_part.hpp"
#include "lib/model/coded_matrix.hpp"

namespace moe::engine {
namespace {

using kernels::kPanelRows;
using kernels::WeightFormat;
using model::MatrixEncoding;
using model::MatrixView;

constexpr std::int64_t kMatrixAlignment = 64;
// Packed between two looks at the interrupt. This much of the source is mapped at a time.
constexpr std::int64_t kBatchBytes = std::int64_t{64} << 20;
// A thread packs at least this much in one go: a huge page is zeroed whole by the thread that
// touches it first, and by two if two come at the same time.
constexpr std::int64_t kRunBytes = std::int64_t{2} << 20;

// Consecutive panels of one part, or of interleaved parts by turns, so that what a thread writes
// lies together.
struct PanelRun {
  std::size_t task = 0;
  std::size_t first_part = 0;
  std::size_t num_parts = 1;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Cuts the parts of a task, parts[first_part] and on, into runs.
void add_runs(const std::vector<PartPacker>& parts, std::size_t first_part, bool interleaved,
              std::size_t task, std::int64_t stride, std::vector<PanelRun>& runs) {
  const std::size_t num_parts = parts.size() - first_part;
  const bool divisible =
      std::none_of(parts.begin() + static_cast<std::ptrdiff_t>(first_part), parts.end(),
                   [](const PartPacker& part) { return part.is_indivisible(); });
  const std::size_t together = interleaved && divisible ? num_parts : 1;
  const auto unit_bytes = std::max<std::int64_t>(1, stride * static_cast<std::int64_t>(together));
  for (std::size_t part = first_part; part < parts.size(); part += together) {
    const std::int64_t num_panels = parts[part].num_panels();
    const std::int64_t step =
        parts[part].is_indivisible() ? num_panels : div_ceil(kRunBytes, unit_bytes);
    for (std::int64_t panel = 0; panel < num_panels; panel += step) {
      runs.push_back({task, part, together, panel, std::min(panel + step, num_panels)});
    }
  }
}

// Memory that nothing is kept in, not even parts of files.
std::int64_t free_memory_bytes() {
  return std::int64_t{::sysconf(_SC_AVPHYS_PAGES)} * std::int64_t{::sysconf(_SC_PAGESIZE)};
}

bool have_one_order(const MatrixView& a, const MatrixView& b) {
  if ((a.column_order == nullptr) != (b.column_order == nullptr)) return false;
  return a.column_order == nullptr ||
         std::equal(a.column_order, a.column_order + a.cols, b.column_order);
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

}  // namespace

std::vector<std::vector<MatrixSlice>> runs_of_one_format(const std::vector<MatrixSlice>& parts) {
  std::vector<std::vector<MatrixSlice>> runs;
  for (const MatrixSlice& part : parts) {
    if (!runs.empty()) {
      runs.back().push_back(part);
      if (have_one_format(runs.back())) continue;
      runs.back().pop_back();
    }
    runs.push_back({part});
  }
  return runs;
}

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
  target->block = as_f32 ? kernels::BlockFormat{} : block_format(view);
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

// Tasks [begin, end): as many as make up kBatchBytes, at least one.
std::size_t PackPlan::batch_end(std::size_t begin) const {
  std::int64_t bytes = 0;
  std::size_t end = begin;
  while (end < tasks_.size() && bytes < kBatchBytes) bytes += packed_bytes(*tasks_[end++].target);
  return end;
}

// Packs tasks [begin, end) and returns the first of them that holds a value that is not finite.
std::size_t PackPlan::pack_tasks(std::size_t begin, std::size_t end, ThreadPool& pool,
                                 std::byte* block) const {
  std::vector<PartPacker> parts;
  std::vector<PanelRun> runs;
  for (std::size_t idx = begin; idx < end; ++idx) {
    const Task& task = tasks_[idx];
    const std::int64_t stride = task.target->panel_stride_bytes;
    const bool interleaved = task.order == PackOrder::kInterleaved;
    const std::size_t first_part = parts.size();
    std::byte* out = block + task.offset;
    for (const MatrixSlice& slice : task.parts) {
      parts.emplace_back(slice, task.target->format, stride, out,
                         interleaved ? 2 * stride : stride);
      out += interleaved ? stride : parts.back().num_panels() * stride;
    }
    add_runs(parts, first_part, interleaved, idx, stride, runs);
  }
  std::vector<std::uint8_t> is_good(runs.size());
  pool.for_each(static_cast<std::int64_t>(runs.size()), [&](std::int64_t index, int) {
    const PanelRun& run = runs[static_cast<std::size_t>(index)];
    bool good = true;
    if (run.num_parts == 1) {
      good = parts[run.first_part].pack(run.begin, run.end);
    } else {
      for (std::int64_t panel = run.begin; panel < run.end; ++panel) {
        for (std::size_t part = 0; part < run.num_parts; ++part) {
          good = parts[run.first_part + part].pack(panel, panel + 1) && good;
        }
      }
    }
    is_good[static_cast<std::size_t>(index)] = good ? 1 : 0;
  });
  const auto bad = std::find(is_good.begin(), is_good.end(), 0);
  return bad == is_good.end() ? end : runs[static_cast<std::size_t>(bad - is_good.begin())].task;
}

void PackPlan::refuse_task(std::size_t idx) const {
  std::string names;
  for (const MatrixSlice& part : tasks_[idx].parts) {
    names += (names.empty() ? "" : ", ") + part.view->name;
  }
  throw Error(ErrorCode::kInput,
              fmt::format("expected finite weights, found NaN or infinity in {}; the "
                          "checkpoint is damaged, download or convert it again",
                          names));
}

void PackPlan::point_target(const Task& task, std::byte* block) {
  task.target->data = block + task.offset;
  if (task.order_offset < 0) return;
  // Panels are whole cache lines: the order is aligned.
  auto* const column_order = reinterpret_cast<std::int32_t*>(block + task.order_offset);
  std::copy_n(task.parts.front().view->column_order, task.target->cols, column_order);
  task.target->column_order = column_order;
}

AlignedBytes PackPlan::execute(ThreadPool& pool, bool drop_source_pages, Progress& progress,
                               const Interrupt& interrupt) const {
  AlignedBytes block(total_bytes_);
  execute_into(block, pool, drop_source_pages, progress, interrupt);
  return block;
}

void PackPlan::execute_into(AlignedBytes& block, ThreadPool& pool, bool drop_source_pages,
                            Progress& progress, const Interrupt& interrupt) const {
  MOE_CHECK(block.size_bytes() == total_bytes_);
  progress.begin("packing weights", total_bytes_, "B");
  for (std::size_t begin = 0; begin < tasks_.size();) {
    if (interrupt.requested()) {
      throw Error(ErrorCode::kRuntime, "interrupted while packing the weights");
    }
    const std::size_t end = batch_end(begin);
    const std::size_t bad = pack_tasks(begin, end, pool, block.data());
    if (bad != end) refuse_task(bad);
    const Task& last = tasks_[end - 1];
    const std::int64_t done = last.offset + packed_bytes(*last.target);
    const bool from_cache = free_memory_bytes() < total_bytes_ - done;
    for (; begin < end; ++begin) {
      point_target(tasks_[begin], block.data());
      if (!drop_source_pages) continue;
      for (const MatrixSlice& part : tasks_[begin].parts) drop_pages(part, from_cache);
    }
    progress.update(done);
  }
  progress.end();
}

}  // namespace moe::engine
