#pragma once

// Turns checkpoint matrices into panels (see kernels/api.hpp) that lie one after another in a
// single memory block. Two phases: add() lays the block out and fills the descriptors, so that its
// size is known before anything is allocated; execute() packs.

#include <cstdint>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::engine {

// Rows [row_begin, row_begin + num_rows) of a checkpoint matrix, or their transpose.
struct MatrixSlice {
  const model::MatrixView* view = nullptr;
  std::int64_t row_begin = 0;
  std::int64_t num_rows = 0;
  bool is_transposed = false;

  [[nodiscard]] std::int64_t rows() const { return is_transposed ? view->cols : num_rows; }
  [[nodiscard]] std::int64_t cols() const { return is_transposed ? num_rows : view->cols; }
};

[[nodiscard]] MatrixSlice whole(const model::MatrixView& view);
[[nodiscard]] MatrixSlice first_rows(const model::MatrixView& view, std::int64_t num_rows);

enum class PackOrder : std::uint8_t {
  kSequential,   // the parts one after another, each padded to whole panels
  kInterleaved,  // two parts of equal shape: panel 2p of the first, panel 2p + 1 of the second
};

class PackPlan {
 public:
  // All parts have the same number of columns. *target receives everything but its data pointer,
  // which execute() sets (its column order too): its address must not change until then. Its rows
  // count the padding of the parts; an output row r of part i is row offset(i) + r, offset(i) being
  // the sum of the padded rows before it. Parts of different formats, and slices that cut through a
  // quantisation block, are widened to f32.
  void add(std::vector<MatrixSlice> parts, PackOrder order, kernels::PackedMatrix* target);
  // The same, always in f32.
  void add_f32(std::vector<MatrixSlice> parts, kernels::PackedMatrix* target);

  [[nodiscard]] std::int64_t total_bytes() const { return total_bytes_; }

  // Packs everything. Progress in bytes. `drop_source_pages`: the sources lie in file mappings
  // whose pages may be given back once they are packed. Throws Error(kInput) for a matrix with a
  // NaN or an infinity, Error(kRuntime) when interrupted.
  [[nodiscard]] AlignedBytes execute(ThreadPool& pool, bool drop_source_pages, Progress& progress,
                                     const Interrupt& interrupt) const;
  // The same into memory of total_bytes() that is aligned and zero.
  void execute_into(AlignedBytes& block, ThreadPool& pool, bool drop_source_pages,
                    Progress& progress, const Interrupt& interrupt) const;

 private:
  struct Task {
    std::vector<MatrixSlice> parts;
    PackOrder order = PackOrder::kSequential;
    kernels::PackedMatrix* target = nullptr;
    std::int64_t offset = 0;
    std::int64_t order_offset = -1;  // of the column order; -1: none
  };

  void add_task(std::vector<MatrixSlice> parts, PackOrder order, bool as_f32,
                kernels::PackedMatrix* target);
  [[nodiscard]] std::size_t batch_end(std::size_t begin) const;
  [[nodiscard]] std::size_t pack_tasks(std::size_t begin, std::size_t end, ThreadPool& pool,
                                       std::byte* block) const;
  [[noreturn]] void refuse_task(std::size_t idx) const;
  static void point_target(const Task& task, std::byte* block);

  std::vector<Task> tasks_;
  std::int64_t total_bytes_ = 0;
};

// Neighbouring parts of one format together, so that add() widens none of them for another.
[[nodiscard]] std::vector<std::vector<MatrixSlice>> runs_of_one_format(
    const std::vector<MatrixSlice>& parts);
// What a matrix is packed as when all parts agree.
[[nodiscard]] kernels::WeightFormat natural_format(const model::MatrixView& view);
// Rows rounded up to whole panels.
[[nodiscard]] std::int64_t padded_rows(std::int64_t rows);
// Bytes of all panels.
[[nodiscard]] std::int64_t packed_bytes(const kernels::PackedMatrix& matrix);

}  // namespace moe::engine
