#include "lib/engine/gemm.hpp"

#include <algorithm>

#include "lib/base/check.hpp"
#include "lib/engine/pack_plan.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::kPanelRows;
using kernels::PackedMatrix;

// Rows of one work item: enough to use a panel many times while it is in the first-level cache, few
// enough that the activations of the block stay in the second-level cache.
constexpr std::int64_t kRowBlock = 96;

// The same for a product of this call: levels with tiles want more, of rounded activations.
std::int64_t row_block(const Exec& exec, ActivationFormat format) {
  return format == ActivationFormat::kF32 ? kRowBlock
                                          : std::max(kRowBlock, exec.kernels->rounded_row_block);
}

// Items a thread gets of a large region: the last one to finish keeps the others waiting for about
// 1/32 of the region.
constexpr std::int64_t kItemsPerThread = 16;
// A thread streams at least this much in one go when the rows are few, so that the prefetchers of
// the memory system see long runs.
constexpr std::int64_t kStreamBytes = 1 << 20;
// Regions cheaper than this run on the calling thread: waking the others costs as much.
constexpr std::int64_t kSerialCost = 1 << 15;

// Cost of one unit (a panel, or a pair of panels) for a block of rows, in bytes streamed from
// memory: beyond a few rows arithmetic dominates and time grows with the rows.
std::int64_t unit_cost(std::int64_t unit_bytes, std::int64_t rows) {
  constexpr std::int64_t kFreeRows = 4;
  return unit_bytes + unit_bytes * rows / kFreeRows;
}

struct Shape {
  std::int64_t num_units = 0;
  std::int64_t unit_bytes = 0;
  std::int64_t num_rows = 0;
  std::int64_t row_block = kRowBlock;

  [[nodiscard]] std::int64_t num_row_blocks() const { return div_ceil(num_rows, row_block); }
  // Row blocks of nearly equal height.
  [[nodiscard]] std::int64_t row_block_begin(std::int64_t block) const {
    return num_rows * block / num_row_blocks();
  }
};

std::int64_t call_cost(const Shape& shape) {
  if (shape.num_rows == 0) return 0;
  const std::int64_t blocks = shape.num_row_blocks();
  return shape.num_units * (blocks * shape.unit_bytes + shape.unit_bytes * shape.num_rows / 4);
}

// Splits calls into items of about equal cost and runs body(item) on all threads, items handed out
// from one counter. All rows of a range of units follow one another, so the packed weights of the
// range are read from memory once.
template <typename ShapeOf, typename Body>
void run_items(Exec& exec, std::size_t num_calls, ShapeOf&& shape_of, Body&& body) {
  std::int64_t total = 0;
  for (std::size_t call = 0; call < num_calls; ++call) total += call_cost(shape_of(call));
  const std::int64_t threads = exec.pool->num_threads();
  const bool is_serial = threads == 1 || total < kSerialCost;
  const std::int64_t target = std::max(total / (threads * kItemsPerThread),
                                       std::min<std::int64_t>(kStreamBytes, total / (threads * 4)));
  exec.items.clear();
  for (std::size_t call = 0; call < num_calls; ++call) {
    const Shape shape = shape_of(call);
    if (shape.num_rows == 0) continue;
    const std::int64_t blocks = shape.num_row_blocks();
    const std::int64_t cost = unit_cost(shape.unit_bytes, div_ceil(shape.num_rows, blocks));
    const std::int64_t step = std::clamp<std::int64_t>(target / cost, 1, shape.num_units);
    for (std::int64_t unit = 0; unit < shape.num_units; unit += step) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        exec.items.push_back({static_cast<std::int32_t>(call), static_cast<std::int32_t>(unit),
                              static_cast<std::int32_t>(std::min(unit + step, shape.num_units)),
                              static_cast<std::int32_t>(shape.row_block_begin(block)),
                              static_cast<std::int32_t>(shape.row_block_begin(block + 1))});
      }
    }
  }
  if (is_serial) {
    for (const WorkItem& item : exec.items) body(item);
    return;
  }
  exec.pool->for_each(static_cast<std::int64_t>(exec.items.size()), [&](std::int64_t index, int) {
    body(exec.items[static_cast<std::size_t>(index)]);
  });
}

void count_product(Exec& exec, const PackedMatrix& weight, std::int64_t rows) {
  if (rows == 0) return;
  exec.stats->weight_bytes_read += packed_bytes(weight);
  exec.stats->flops += 2 * rows * weight.rows * weight.cols;
}

ActivationFormat format_of(const Exec& exec, const LinearCall& call) {
  if (reads_bf16(exec, *call.weight) && call.x.bf16 != nullptr) return ActivationFormat::kBf16;
  if (reads_int8(exec, *call.weight) && call.x.int8.fit(*call.weight)) {
    return ActivationFormat::kInt8;
  }
  return ActivationFormat::kF32;
}

// The activations of an item's rows. With a row list this names the rows, without one the base is
// shifted.
template <typename Args>
void set_rows(ActivationFormat format, const Activations& all, const std::int32_t* x_rows,
              const WorkItem& item, Args& args) {
  const Activations x = x_rows == nullptr ? all.from_row(item.row_begin) : all;
  args.x_rows = x_rows == nullptr ? nullptr : x_rows + item.row_begin;
  args.num_rows = item.row_end - item.row_begin;
  args.activation_format = format;
  args.x_stride = x.stride;
  switch (format) {
    case ActivationFormat::kF32:
      args.x = x.f32;
      return;
    case ActivationFormat::kBf16:
      args.x = x.bf16;
      return;
    case ActivationFormat::kInt8:
      args.x = x.int8.codes;
      args.x_stride = x.int8.stride;
      args.x_scales = x.int8.scales;
      args.x_sums = x.int8.sums;
      args.x_block_stride = x.int8.num_blocks;
      return;
  }
}

}  // namespace

ActivationBuffer::ActivationBuffer(std::int64_t rows, std::int64_t cols, bool has_bf16)
    : f32_(rows * padded_cols(cols)),
      bf16_(has_bf16 ? rows * padded_cols(cols) : 0),
      stride_(padded_cols(cols)) {}

std::int64_t ActivationBuffer::padded_cols(std::int64_t cols) {
  return align_up(cols, 32);
}

std::int64_t ActivationBuffer::bytes(std::int64_t rows, std::int64_t cols, bool has_bf16) {
  return rows * padded_cols(cols) * (has_bf16 ? 6 : 4);
}

std::int64_t max_work_items(int num_threads, std::int64_t max_calls, std::int64_t max_total_rows) {
  // Every row block of a call contributes its share of the total cost over the target, at most
  // kItemsPerThread per thread in all, doubled because units per item round down, and one item for
  // the rest.
  return div_ceil(max_total_rows, kRowBlock) + 2 * max_calls +
         4 * static_cast<std::int64_t>(num_threads) * kItemsPerThread;
}

Activations with_int8(Exec& exec, const PackedMatrix& weight, const Activations& x,
                      std::int64_t num_rows, Int8Buffer& buffer) {
  if (!reads_int8(exec, weight)) return x;
  buffer.clear();
  Activations out = x;
  out.int8 = buffer.take(num_rows, weight);
  for_each_row(exec, num_rows, 2 * weight.cols, [&](std::int64_t row) {
    out.int8.quantize(*exec.kernels, row, x.f32 + row * x.stride);
  });
  return out;
}

void run_linear(Exec& exec, std::span<const LinearCall> calls) {
  for (const LinearCall& call : calls) count_product(exec, *call.weight, call.num_rows);
  const auto shape_of = [&](std::size_t idx) {
    const LinearCall& call = calls[idx];
    return Shape{div_ceil(call.weight->rows, kPanelRows), call.weight->panel_stride_bytes,
                 call.num_rows, row_block(exec, format_of(exec, call))};
  };
  run_items(exec, calls.size(), shape_of, [&](const WorkItem& item) {
    const LinearCall& call = calls[static_cast<std::size_t>(item.call)];
    const ActivationFormat format = format_of(exec, call);
    kernels::GemmArgs args;
    args.weight = *call.weight;
    args.panel_begin = item.unit_begin;
    args.panel_end = item.unit_end;
    set_rows(format, call.x, call.x_rows, item, args);
    args.bias = call.bias;
    args.y = call.y + item.row_begin * call.y_stride;
    args.y_stride = call.y_stride;
    if (format == ActivationFormat::kInt8) {
      exec.kernels->gemm_int8(args);
    } else {
      exec.kernels->gemm(args);
    }
  });
}

void run_gate_up(Exec& exec, std::span<const GateUpCall> calls) {
  for (const GateUpCall& call : calls) count_product(exec, *call.weight, call.num_rows);
  const auto shape_of = [&](std::size_t idx) {
    const GateUpCall& call = calls[idx];
    return Shape{div_ceil(call.intermediate, kPanelRows), 2 * call.weight->panel_stride_bytes,
                 call.num_rows, row_block(exec, call.activations)};
  };
  run_items(exec, calls.size(), shape_of, [&](const WorkItem& item) {
    const GateUpCall& call = calls[static_cast<std::size_t>(item.call)];
    kernels::GateUpArgs args;
    args.weight = *call.weight;
    args.pair_begin = item.unit_begin;
    args.pair_end = item.unit_end;
    set_rows(call.activations, call.x, call.x_rows, item, args);
    args.glu = call.glu;
    args.limit = call.limit;
    args.alpha = call.alpha;
    args.gate_bias = call.gate_bias;
    args.up_bias = call.up_bias;
    args.h_stride = call.h_stride;
    args.intermediate = call.intermediate;
    if (call.activations == ActivationFormat::kBf16) {
      args.h = call.h_bf16 + item.row_begin * call.h_stride;
    } else {
      args.h = call.h_f32 + item.row_begin * call.h_stride;
    }
    if (call.activations == ActivationFormat::kInt8) {
      exec.kernels->gemm_gate_up_int8(args);
    } else {
      exec.kernels->gemm_gate_up(args);
    }
  });
}

}  // namespace moe::engine
