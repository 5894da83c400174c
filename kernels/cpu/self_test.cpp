#include "kernels/cpu/self_test.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cpu/attention_blocking.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/numeric.hpp"
#include "kernels/cpu/scalar/scalar.hpp"

namespace moe::kernels {
namespace {

// Odd columns, a short last fp8 block and mxfp4 group; enough panels for the widest tile of any
// level and a remainder; a last panel of 5 rows.
constexpr std::int64_t kCols = 37;
constexpr std::int64_t kFp8BlockCols = 20;
constexpr std::int64_t kRows = 8 * kPanelRows + 5;
constexpr std::int64_t kPanels = 9;
constexpr std::int64_t kPairs = 4;
constexpr std::int64_t kIntermediate = kPairs * kPanelRows - 3;
// Products are computed for batches that gather from kInputRows rows, so that the scalar level runs
// once: every height of a vector level's tile, and one, two and three tiles of AMX.
constexpr std::int64_t kInputRows = 4;
constexpr std::int64_t kMaxBatch = 33;
constexpr std::array<std::int64_t, 15> kBatches = {1, 2,  3,  4,  5,  6,  7,        8,
                                                   9, 10, 11, 12, 13, 17, kMaxBatch};
constexpr std::int64_t kXStride = 40;
constexpr std::int64_t kYStride = kPanels * kPanelRows;
constexpr std::int64_t kBlocks = 2;
constexpr std::int64_t kPanelBytesMax = 2432;  // f32: 37 columns of 64 bytes, rounded up
constexpr float kCanary = -12345.0F;

constexpr std::array<WeightFormat, 7> kFormats = {
    WeightFormat::kF32,   WeightFormat::kF16,  WeightFormat::kBf16, WeightFormat::kFp8,
    WeightFormat::kMxfp4, WeightFormat::kInt8, WeightFormat::kInt4};

// Weights reach 16 and activations 1, so the magnitudes of a product sum to less than 600 and
// f32 rounding of random signs stays below 1e-3; a wrong lane, column or code is off by 1e-2 and
// more.
bool close(float actual, float expected) {
  if (std::isnan(expected)) {
    return std::isnan(actual);
  }
  return std::fabs(actual - expected) <= 1e-3F * std::max(1.0F, std::fabs(expected));
}

bool all_close(const float* actual, const float* expected, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (!close(actual[i], expected[i])) {
      return false;
    }
  }
  return true;
}

// A fixed sequence of values in [-1, 1) (a linear congruential generator; constants from Numerical
// Recipes).
class Sequence {
 public:
  std::uint32_t bits() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8U;
  }
  float value() { return static_cast<float>(bits()) * 0x1p-23F - 1.0F; }
  void fill(float* out, std::int64_t n) {
    std::generate_n(out, n, [this] { return value(); });
  }

 private:
  std::uint32_t state_ = 20240607U;
};

struct Workspace {
  alignas(64) std::array<std::byte, kRows * kCols * 4> source;
  alignas(64) std::array<std::byte, kRows * 16> scales;
  alignas(64) std::array<std::byte, kRows * 2> offsets;
  alignas(64) std::array<std::byte, kPanels * kPanelBytesMax> packed;
  alignas(64) std::array<float, kInputRows * kXStride> x;
  alignas(64) std::array<std::uint16_t, kInputRows * kXStride> x_bf16;
  std::array<std::int8_t, kInputRows * kXStride> x_codes;
  std::array<float, kInputRows * kBlocks> x_scales;
  std::array<std::int32_t, kInputRows * kBlocks> x_sums;
  std::array<std::int32_t, kMaxBatch> x_rows;
  std::array<float, kYStride> bias;
  std::array<float, kYStride> bias_up;
  std::array<float, kInputRows * kYStride> expected;
  std::array<float, kMaxBatch * kYStride> actual;
  std::array<std::uint16_t, kMaxBatch * kYStride> actual_bf16;
};

template <class T>
void put(std::byte* at, std::int64_t idx, T value) {
  std::memcpy(at + idx * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// Zero, subnormals and the exponents up to 2^3.
std::uint16_t f16_code(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 10U) % 19U;
  return static_cast<std::uint16_t>((bits & 0x83ffU) | (exponent << 10U));
}

// All exponents of e4m3 occur, one per row, with a scale that brings them to 1..2.
std::uint8_t e4m3_code(std::int64_t row, std::uint32_t bits) {
  const auto exponent = static_cast<std::uint32_t>(row % 16);
  std::uint32_t code = (bits & 0x87U) | (exponent << 3U);
  if ((code & 0x7fU) == 0x7fU && row != 15) {
    code &= 0xfeU;  // no NaN, but in one row
  }
  return static_cast<std::uint8_t>(code);
}

SourceMatrix make_weights(WeightFormat format, Sequence& sequence, Workspace& work) {
  SourceMatrix source{.format = format, .rows = kRows, .cols = kCols, .data = work.source.data()};
  source.row_stride = format == WeightFormat::kMxfp4 ? ceil_div(kCols, 2) : kCols;
  source.scales = work.scales.data();
  source.scale_row_stride = 2;
  source.block_rows = 1;
  const bool is_int = format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
  source.block_cols = format == WeightFormat::kFp8 || is_int ? kFp8BlockCols : 0;
  if (is_int) {
    source.block.offset = OffsetKind::kZeroPoints;
    source.offsets = work.offsets.data();
  }
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < source.row_stride; ++i) {
      const std::int64_t at = row * source.row_stride + i;
      switch (format) {
        case WeightFormat::kF32:
          put(work.source.data(), at, sequence.value());
          break;
        case WeightFormat::kF16:
          put(work.source.data(), at, f16_code(sequence.bits()));
          break;
        case WeightFormat::kBf16:
          put(work.source.data(), at, bf16_from_f32(sequence.value()));
          break;
        case WeightFormat::kFp8:
          put(work.source.data(), at, e4m3_code(row, sequence.bits()));
          break;
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt8:
          put(work.source.data(), at, static_cast<std::uint8_t>(sequence.bits()));
          break;
        case WeightFormat::kInt4:
          put(work.source.data(), at, static_cast<std::uint8_t>(sequence.bits() & 0xfU));
          break;
      }
    }
    const auto block_scale = static_cast<int>(7 - std::max<std::int64_t>(1, row % 16));
    for (std::int64_t block = 0; block < 2; ++block) {
      const std::int64_t at = row * 2 + block;
      if (format == WeightFormat::kInt8 || format == WeightFormat::kInt4) {
        put(work.scales.data(), at, std::ldexp(block == 0 ? 1.0F : 0.75F, -7));
        put(work.offsets.data(), at, static_cast<std::int8_t>(sequence.bits() & 0xfU));
      } else if (format == WeightFormat::kFp8) {
        put(work.scales.data(), at, std::ldexp(block == 0 ? 1.0F : 0.75F, block_scale));
      } else {  // 2^-3 .. 1, and one NaN
        const std::uint32_t exponent = row == 3 ? 255U : 124U + sequence.bits() % 4U;
        put(work.scales.data(), at, static_cast<std::uint8_t>(exponent));
      }
    }
  }
  return source;
}

PackedMatrix pack(const SourceMatrix& source, Workspace& work) {
  PackedMatrix packed{.data = work.packed.data(),
                      .format = source.format,
                      .rows = source.rows,
                      .cols = source.cols,
                      .block_cols = source.block_cols,
                      .block = source.block};
  packed.panel_stride_bytes =
      panel_bytes(source.format, source.cols, source.block_cols, source.block);
  for (std::int64_t panel = 0; panel < kPanels; ++panel) {
    pack_panel(source, panel, work.packed.data() + panel * packed.panel_stride_bytes);
  }
  return packed;
}

void make_inputs(Sequence& sequence, Workspace& work) {
  sequence.fill(work.x.data(), kInputRows * kXStride);
  scalar::f32_to_bf16(work.x.data(), kInputRows * kXStride, work.x_bf16.data());
  sequence.fill(work.bias.data(), kYStride);
  sequence.fill(work.bias_up.data(), kYStride);
  for (std::int64_t i = 0; i < kMaxBatch; ++i) {
    work.x_rows[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>((kInputRows - 1 + i) % kInputRows);
  }
}

const void* activations(ActivationFormat format, const Workspace& work) {
  return format == ActivationFormat::kF32 ? static_cast<const void*>(work.x.data())
                                          : static_cast<const void*>(work.x_bf16.data());
}

bool check_gemm(const KernelTable& table, const PackedMatrix& weight, ActivationFormat format,
                Workspace& work) {
  GemmArgs args{.weight = weight,
                .panel_begin = 0,
                .panel_end = kPanels,
                .activation_format = format,
                .x = activations(format, work),
                .x_stride = kXStride,
                .num_rows = kInputRows,
                .bias = work.bias.data(),
                .y = work.expected.data(),
                .y_stride = kYStride};
  scalar::gemm(args);
  args.x_rows = work.x_rows.data();
  args.y = work.actual.data();
  for (const std::int64_t batch : kBatches) {
    work.actual.fill(kCanary);
    args.num_rows = batch;
    table.gemm(args);
    for (std::int64_t i = 0; i < batch; ++i) {
      const float* actual = work.actual.data() + i * kYStride;
      const std::int64_t row = work.x_rows[static_cast<std::size_t>(i)];
      if (!all_close(actual, work.expected.data() + row * kYStride, kRows) ||
          std::count(actual + kRows, actual + kYStride, kCanary) != kYStride - kRows) {
        return false;
      }
    }
  }
  return true;
}

// bf16 results may round to either neighbour, 2^-8 apart.
bool check_gate_up_row(const Workspace& work, ActivationFormat format, std::int64_t i,
                       const float* expected) {
  const std::int64_t at = i * kYStride;
  if (format == ActivationFormat::kF32) {
    return all_close(work.actual.data() + at, expected, kIntermediate) &&
           work.actual[static_cast<std::size_t>(at + kIntermediate)] == kCanary;
  }
  for (std::int64_t out = 0; out < kIntermediate; ++out) {
    const float actual = bf16_value(work.actual_bf16[static_cast<std::size_t>(at + out)]);
    const float slack = 0x1p-7F * std::fabs(expected[out]) + 1e-3F;
    if (std::isnan(expected[out]) ? !std::isnan(actual)
                                  : !(std::fabs(actual - expected[out]) <= slack)) {
      return false;
    }
  }
  return work.actual_bf16[static_cast<std::size_t>(at + kIntermediate)] == 0xabcdU;
}

bool check_gate_up(const KernelTable& table, const PackedMatrix& weight, ActivationFormat format,
                   GluKind glu, Workspace& work) {
  GateUpArgs args{.weight = weight,
                  .pair_begin = 0,
                  .pair_end = kPairs,
                  .activation_format = ActivationFormat::kF32,
                  .x = work.x.data(),
                  .x_stride = kXStride,
                  .num_rows = kInputRows,
                  .glu = glu,
                  .limit = 2.0F,
                  .alpha = 1.702F,
                  .gate_bias = work.bias.data(),
                  .up_bias = work.bias_up.data(),
                  .h = work.expected.data(),
                  .h_stride = kYStride,
                  .intermediate = kIntermediate};
  std::array<float, kInputRows * kXStride> rounded;
  if (format == ActivationFormat::kBf16) {
    std::transform(work.x_bf16.begin(), work.x_bf16.end(), rounded.begin(), bf16_value);
    args.x = rounded.data();
  }
  scalar::gemm_gate_up(args);
  args.activation_format = format;
  args.x = activations(format, work);
  args.x_rows = work.x_rows.data();
  args.h = format == ActivationFormat::kF32 ? static_cast<void*>(work.actual.data())
                                            : static_cast<void*>(work.actual_bf16.data());
  for (const std::int64_t batch : kBatches) {
    work.actual.fill(kCanary);
    work.actual_bf16.fill(0xabcdU);
    args.num_rows = batch;
    table.gemm_gate_up(args);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t row = work.x_rows[static_cast<std::size_t>(i)];
      if (!check_gate_up_row(work, format, i, work.expected.data() + row * kYStride)) {
        return false;
      }
    }
  }
  return true;
}

// int8 activations, whose products are exact: every level has the bits of the scalar one.
bool check_codes(const KernelTable& table, Workspace& work) {
  for (std::int64_t row = 0; row < kInputRows; ++row) {
    std::array<std::int8_t, kXStride> codes{};
    std::array<float, kBlocks> scales;
    std::array<std::int32_t, kBlocks> sums;
    QuantizeArgs args{.x = work.x.data() + row * kXStride,
                      .cols = kCols,
                      .block_cols = kFp8BlockCols,
                      .codes = codes.data(),
                      .scales = scales.data(),
                      .sums = sums.data()};
    table.quantize_row(args);
    args.codes = work.x_codes.data() + row * kXStride;
    args.scales = work.x_scales.data() + row * kBlocks;
    args.sums = work.x_sums.data() + row * kBlocks;
    std::fill_n(args.codes, kXStride, std::int8_t{0});
    scalar::quantize_row(args);
    if (!std::equal(codes.begin(), codes.end(), args.codes) ||
        !std::equal(scales.begin(), scales.end(), args.scales) ||
        !std::equal(sums.begin(), sums.end(), args.sums)) {
      return false;
    }
  }
  return true;
}

template <class Args>
void set_int8(const Workspace& work, Args& args) {
  args.activation_format = ActivationFormat::kInt8;
  args.x = work.x_codes.data();
  args.x_stride = kXStride;
  args.x_scales = work.x_scales.data();
  args.x_sums = work.x_sums.data();
  args.x_block_stride = kBlocks;
}

bool check_gemm_int8(const KernelTable& table, const PackedMatrix& weight, Workspace& work) {
  GemmArgs args{.weight = weight, .panel_end = kPanels, .bias = work.bias.data()};
  set_int8(work, args);
  args.num_rows = kInputRows;
  args.y = work.expected.data();
  args.y_stride = kYStride;
  scalar::gemm_int8(args);
  args.x_rows = work.x_rows.data();
  args.y = work.actual.data();
  for (const std::int64_t batch : kBatches) {
    work.actual.fill(kCanary);
    args.num_rows = batch;
    table.gemm_int8(args);
    for (std::int64_t i = 0; i < batch; ++i) {
      const float* const actual = work.actual.data() + i * kYStride;
      const std::int64_t row = work.x_rows[static_cast<std::size_t>(i)];
      if (!std::equal(actual, actual + kRows, work.expected.data() + row * kYStride) ||
          std::count(actual + kRows, actual + kYStride, kCanary) != kYStride - kRows) {
        return false;
      }
    }
  }
  return true;
}

bool check_gate_up_int8(const KernelTable& table, const PackedMatrix& weight, Workspace& work) {
  GateUpArgs args{.weight = weight, .pair_end = kPairs};
  set_int8(work, args);
  args.num_rows = kInputRows;
  args.gate_bias = work.bias.data();
  args.up_bias = work.bias_up.data();
  args.h = work.expected.data();
  args.h_stride = kYStride;
  args.intermediate = kIntermediate;
  scalar::gemm_gate_up_int8(args);
  args.x_rows = work.x_rows.data();
  args.h = work.actual.data();
  for (const std::int64_t batch : kBatches) {
    work.actual.fill(kCanary);
    args.num_rows = batch;
    table.gemm_gate_up_int8(args);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t row = work.x_rows[static_cast<std::size_t>(i)];
      if (!check_gate_up_row(work, ActivationFormat::kF32, i,
                             work.expected.data() + row * kYStride)) {
        return false;
      }
    }
  }
  return true;
}

const char* check_int8(const KernelTable& table, Sequence& sequence, Workspace& work) {
  make_inputs(sequence, work);
  if (!check_codes(table, work)) {
    return "quantize_row";
  }
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    const PackedMatrix weight = pack(make_weights(format, sequence, work), work);
    if (!check_gemm_int8(table, weight, work)) {
      return "gemm_int8";
    }
    if (!check_gate_up_int8(table, weight, work)) {
      return "gemm_gate_up_int8";
    }
  }
  return nullptr;
}

const char* check_products(const KernelTable& table, Sequence& sequence, Workspace& work) {
  make_inputs(sequence, work);
  for (const WeightFormat format : kFormats) {
    const PackedMatrix weight = pack(make_weights(format, sequence, work), work);
    if (!check_gemm(table, weight, ActivationFormat::kF32, work)) {
      return "gemm";
    }
    if (!check_gate_up(table, weight, ActivationFormat::kF32, GluKind::kSilu, work)) {
      return "gemm_gate_up";
    }
    if (takes_bf16(table, format)) {
      if (!check_gemm(table, weight, ActivationFormat::kBf16, work)) {
        return "gemm with bf16 activations";
      }
      if (!check_gate_up(table, weight, ActivationFormat::kBf16, GluKind::kGptOss, work)) {
        return "gemm_gate_up with bf16 activations";
      }
    }
  }
  return nullptr;
}

struct AttentionCase {
  std::int64_t num_queries;
  std::int64_t num_heads;
  std::int64_t first_position;
  std::int64_t window;
  bool has_sinks;
};

constexpr std::int64_t kKDim = 21;
constexpr std::int64_t kVDim = 19;
constexpr std::int64_t kMaxKeys = 80;
constexpr std::int64_t kMaxPairs = 60;  // queries times heads

// Crosses a block of keys and the rows of one pass, and ends inside a block.
constexpr AttentionCase kAttentionCases[] = {
    {1, 1, 0, 0, false},   {1, 1, 70, 0, true},  {5, 1, 62, 9, false},
    {20, 3, 50, 0, false}, {4, 4, 76, 13, true},
};

struct AttentionWorkspace {
  std::array<float, kMaxPairs * kKDim> q;
  std::array<float, kMaxKeys * kKDim> k;
  std::array<float, kMaxKeys * kVDim> v;
  std::array<float, 4> sinks;
  std::array<float, kMaxPairs * kVDim> expected;
  std::array<float, kMaxPairs * kVDim> actual;
  alignas(64) std::array<float, attention_block_floats(kVDim) + kMaxKeys> scratch;
};

bool check_attention(const KernelTable& table, Sequence& sequence) {
  AttentionWorkspace work;
  sequence.fill(work.q.data(), kMaxPairs * kKDim);
  sequence.fill(work.k.data(), kMaxKeys * kKDim);
  sequence.fill(work.v.data(), kMaxKeys * kVDim);
  sequence.fill(work.sinks.data(), 4);
  for (const AttentionCase& item : kAttentionCases) {
    AttentionArgs args{.q = work.q.data(),
                       .q_stride = item.num_heads * kKDim,
                       .q_head_stride = kKDim,
                       .num_queries = item.num_queries,
                       .num_heads = item.num_heads,
                       .first_position = item.first_position,
                       .window = item.window,
                       .k = work.k.data(),
                       .k_stride = kKDim,
                       .k_dim = kKDim,
                       .v = work.v.data(),
                       .v_stride = kVDim,
                       .v_dim = kVDim,
                       .scale = 1.5F,
                       .sinks = item.has_sinks ? work.sinks.data() : nullptr,
                       .out = work.expected.data(),
                       .out_stride = item.num_heads * kVDim,
                       .out_head_stride = kVDim,
                       .scratch = work.scratch.data()};
    scalar::attention(args);
    args.out = work.actual.data();
    table.attention(args);
    if (!all_close(work.actual.data(), work.expected.data(),
                   item.num_queries * item.num_heads * kVDim)) {
      return false;
    }
  }
  return true;
}

const char* check_vector_ops(const KernelTable& table, Sequence& sequence) {
  constexpr std::int64_t kMax = 70;
  std::array<float, kMax + 1> x, y, expected, actual;
  std::array<std::uint16_t, kMax + 1> expected_bf16, actual_bf16;
  sequence.fill(x.data(), kMax + 1);
  sequence.fill(y.data(), kMax + 1);
  for (const std::int64_t n : {1, 7, 8, 15, 16, 17, 31, 33, 64, 70}) {
    expected.fill(kCanary);
    actual.fill(kCanary);
    scalar::rms_norm(x.data(), y.data(), n, 1e-5F, expected.data());
    table.rms_norm(x.data(), y.data(), n, 1e-5F, actual.data());
    if (!all_close(actual.data(), expected.data(), kMax + 1)) {
      return "rms_norm";
    }
    expected = y;
    actual = y;
    scalar::axpy(0.75F, x.data(), n, expected.data());
    table.axpy(0.75F, x.data(), n, actual.data());
    if (!all_close(actual.data(), expected.data(), kMax + 1)) {
      return "axpy";
    }
    expected_bf16.fill(0xabcdU);
    actual_bf16.fill(0xabcdU);
    scalar::f32_to_bf16(x.data(), n, expected_bf16.data());
    table.f32_to_bf16(x.data(), n, actual_bf16.data());
    if (expected_bf16 != actual_bf16) {
      return "f32_to_bf16";
    }
    if (!close(table.dot(x.data(), y.data(), n), scalar::dot(x.data(), y.data(), n))) {
      return "dot";
    }
  }
  return nullptr;
}

}  // namespace

bool self_test_table(const KernelTable& table, const char** failed) noexcept {
  Sequence sequence;
  Workspace work;
  *failed = check_vector_ops(table, sequence);
  if (*failed == nullptr) {
    *failed = check_products(table, sequence, work);
  }
  if (*failed == nullptr) {
    *failed = check_int8(table, sequence, work);
  }
  if (*failed == nullptr && !check_attention(table, sequence)) {
    *failed = "attention";
  }
  return *failed == nullptr;
}

bool self_test(Isa isa, const char** failed) noexcept {
  const KernelTable* table = kernel_table(isa);
  if (table == nullptr) {
    *failed = "level not available";
    return false;
  }
  if (isa == Isa::kScalar) {  // the definition itself
    *failed = nullptr;
    return true;
  }
  return self_test_table(*table, failed);
}

}  // namespace moe::kernels
