#include "lib/engine/product_loop.hpp"

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::WeightFormat;

// A matrix whose panels and rows stay in the L1 and L2 of any core we know: 32 KiB in f32.
constexpr std::int64_t kProductRows = 32;
constexpr std::int64_t kProductCols = 256;
// What most quantised checkpoints use (AWQ, GPTQ); the scales of a group of 32 cost more.
constexpr std::int64_t kBlockCols = 128;
constexpr std::int64_t kBlocks = kProductCols / kBlockCols;

std::int64_t panel_size_bytes(WeightFormat format) {
  return kernels::panel_bytes(format, kProductCols, kBlockCols);
}

}  // namespace

bool has_scales(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kMxfp4 ||
         format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

bool can_multiply(const PeakCase& of) {
  if (of.activations == ActivationFormat::kF32) return true;
  if (of.activations == ActivationFormat::kInt8) {
    return of.weights == WeightFormat::kInt8 || of.weights == WeightFormat::kInt4;
  }
  const kernels::KernelTable* table = kernels::kernel_table(of.isa);
  return table != nullptr && kernels::takes_bf16(*table, of.weights);
}

ProductLoop::ProductLoop(const PeakCase& of, std::int32_t num_threads)
    : case_(of), table_(kernels::kernel_table(of.isa)) {
  MOE_CHECK(table_ != nullptr && can_multiply(of));
  const std::int64_t num_panels = div_exact(kProductRows, kernels::kPanelRows);
  for (std::int32_t i = 0; i < num_threads; ++i) {
    // Zero weights and activations, which no kernel treats apart.
    operands_.push_back({AlignedBytes(panel_size_bytes(of.weights) * num_panels),
                         AlignedBuffer<float>(kMaxTokens * kProductCols),
                         AlignedBuffer<float>(kMaxTokens * kBlocks),
                         AlignedBuffer<std::int32_t>(kMaxTokens * kBlocks),
                         AlignedBuffer<float>(kMaxTokens * kProductRows)});
  }
}

double ProductLoop::flops(std::int32_t num_tokens) {
  return 2.0 * static_cast<double>(kProductRows * kProductCols * num_tokens);
}

void ProductLoop::run(std::int32_t thread_idx, std::int32_t num_tokens) {
  Operands& operands = operands_[static_cast<std::size_t>(thread_idx)];
  kernels::GemmArgs args;
  args.weight.data = operands.weights.data();
  args.weight.format = case_.weights;
  args.weight.rows = kProductRows;
  args.weight.cols = kProductCols;
  args.weight.block_cols = kBlockCols;
  args.weight.panel_stride_bytes = panel_size_bytes(case_.weights);
  args.panel_end = div_exact(kProductRows, kernels::kPanelRows);
  args.activation_format = case_.activations;
  args.x = operands.x.data();
  args.x_stride = kProductCols;
  args.x_scales = operands.x_scales.data();
  args.x_sums = operands.x_sums.data();
  args.x_block_stride = kBlocks;
  args.num_rows = num_tokens;
  args.y = operands.y.data();
  args.y_stride = kProductRows;
  if (case_.activations == ActivationFormat::kInt8) {
    table_->gemm_int8(args);
  } else {
    table_->gemm(args);
  }
}

}  // namespace moe::engine
