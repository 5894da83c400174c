// Goal: products of every level and weight format are right for every shape, and do not depend on
// the batch. Method: the scalar level against sums in double over the values of the matrix; every
// other level against the scalar one; both within the tolerance of tolerance.hpp.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/numeric.hpp"
#include "tests/kernels/levels.hpp"
#include "tests/kernels/matrices.hpp"
#include "tests/kernels/tolerance.hpp"

namespace moe::kernels {
namespace {

constexpr float kUntouched = -1.25e30F;

struct Activations {
  Activations(std::int64_t rows, std::int64_t cols, std::int64_t padding,
              ActivationFormat row_format, Rng& rng)
      : format(row_format), stride(cols + padding), f32(rows * stride), bf16(rows * stride) {
    const std::vector<float> values = random_floats(rng, rows * stride);
    for (std::int64_t i = 0; i < f32.size(); ++i) {
      bf16[i] = bf16_from_f32(values[static_cast<std::size_t>(i)]);
      f32[i] = format == ActivationFormat::kF32 ? values[static_cast<std::size_t>(i)]
                                                : bf16_value(bf16[i]);
    }
    // What follows a row must not take part in its product.
    for (std::int64_t row = 0; row < rows && padding > 0; ++row) {
      f32[row * stride + cols] = NAN;
      bf16[row * stride + cols] = 0x7fc0;
    }
  }
  [[nodiscard]] const void* data() const {
    return format == ActivationFormat::kF32 ? static_cast<const void*>(f32.data())
                                            : static_cast<const void*>(bf16.data());
  }
  [[nodiscard]] const float* row(std::int64_t idx) const { return f32.data() + idx * stride; }

  ActivationFormat format;
  std::int64_t stride;
  AlignedBuffer<float> f32;  // with the values of bf16 when that is the format
  AlignedBuffer<std::uint16_t> bf16;
};

struct Case {
  WeightFormat format;
  ActivationFormat activation = ActivationFormat::kF32;
  MatrixShape shape;
};

// What the level multiplies.
std::vector<Case> cases_of(const KernelTable& table, const MatrixShape& shape) {
  std::vector<Case> cases;
  for (const WeightFormat format : kAllFormats) {
    cases.push_back({.format = format, .shape = shape});
  }
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const BlockFormat block : with_two_levels({{ScaleFormat::kF16, OffsetKind::kZeroPoints},
                                                    {ScaleFormat::kBf16, OffsetKind::kZeroPoints}},
                                                   shape)) {
      MatrixShape with_offsets = shape;
      with_offsets.block = block;
      with_offsets.has_column_order =
          block.scale == ScaleFormat::kF16 && shape.fp8_block_cols <= kMaxOrderedBlockCols;
      cases.push_back({.format = format, .shape = with_offsets});
    }
  }
  const std::size_t num_f32 = cases.size();
  for (std::size_t i = 0; i < num_f32; ++i) {
    if (!takes_bf16(table, cases[i].format)) continue;
    Case with_bf16 = cases[i];
    with_bf16.activation = ActivationFormat::kBf16;
    cases.push_back(with_bf16);
  }
  return cases;
}

std::string describe(const Case& item) {
  return format_name(item.format) +
         (item.activation == ActivationFormat::kBf16 ? " with bf16 activations" : "") +
         (item.shape.has_column_order ? " in another order" : "") + ", offsets " +
         std::to_string(static_cast<int>(item.shape.block.offset)) + " " +
         std::to_string(item.shape.rows) + " x " + std::to_string(item.shape.cols);
}

GemmArgs gemm_args(const TestMatrix& matrix, const Activations& x, std::int64_t num_rows,
                   std::vector<float>& y, std::int64_t y_stride) {
  y.assign(static_cast<std::size_t>(num_rows * y_stride), kUntouched);
  return {.weight = matrix.packed(),
          .panel_begin = 0,
          .panel_end = matrix.num_panels(),
          .activation_format = x.format,
          .x = x.data(),
          .x_stride = x.stride,
          .num_rows = num_rows,
          .y = y.data(),
          .y_stride = y_stride};
}

void expect_products(const KernelTable& table, const Case& item, std::int64_t num_rows, Rng& rng) {
  SCOPED_TRACE(describe(item) + ", " + std::to_string(num_rows) + " rows");
  const TestMatrix matrix(item.format, item.shape, rng);
  const Activations x(std::max<std::int64_t>(num_rows, 1), item.shape.cols, 3, item.activation,
                      rng);
  const std::vector<float> bias = random_floats(rng, item.shape.rows);
  std::vector<float> y;
  const std::int64_t y_stride = item.shape.rows + 5;
  GemmArgs args = gemm_args(matrix, x, num_rows, y, y_stride);
  args.bias = num_rows % 2 == 0 ? bias.data() : nullptr;
  table.gemm(args);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (std::int64_t out = 0; out < item.shape.rows; ++out) {
      double magnitude = 0.0;
      double expected = matrix.product(out, x.row(i), &magnitude);
      if (args.bias != nullptr) {
        expected += static_cast<double>(bias[static_cast<std::size_t>(out)]);
        magnitude += std::fabs(static_cast<double>(bias[static_cast<std::size_t>(out)]));
      }
      ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i * y_stride + out)]), expected,
                  sum_tolerance(item.shape.cols, magnitude))
          << "row " << i << " output " << out;
    }
    for (std::int64_t out = item.shape.rows; out < y_stride; ++out) {
      ASSERT_EQ(y[static_cast<std::size_t>(i * y_stride + out)], kUntouched);
    }
  }
}

class Gemm : public LevelTest {};

// Sizes around the width of a vector, a pair, a scale block and a tile; every way through the code.
TEST_P(Gemm, IsTheSumInDoubleForEverySize) {
  Rng rng(11);
  for (const std::int64_t rows : {1, 15, 16, 17, 31, 33}) {
    for (const std::int64_t cols : {0, 1, 15, 16, 17, 31, 33}) {
      for (const Case& item : cases_of(
               table(), {.rows = rows, .cols = cols, .fp8_block_rows = 3, .fp8_block_cols = 10})) {
        expect_products(table(), item, 1 + (rows + cols) % 7, rng);
      }
    }
  }
}

TEST_P(Gemm, IsTheSumInDoubleForEveryBatch) {
  Rng rng(12);
  for (const std::int64_t num_rows : {0, 1, 2, 3, 4, 5, 6, 7, 12, 24, 29, 48, 49, 101}) {
    for (const Case& item : cases_of(table(), {.rows = 165, .cols = 71, .fp8_block_cols = 32})) {
      expect_products(table(), item, num_rows, rng);
    }
  }
}

// Every height of a tile of rows, and enough rows for every way of taking them.
TEST_P(Gemm, IsTheSumInDoubleForEveryRaggedBatch) {
  Rng rng(19);
  for (std::int64_t num_rows = 1; num_rows <= 33; ++num_rows) {
    for (const Case& item : cases_of(table(), {.rows = 40, .cols = 71, .fp8_block_cols = 40})) {
      expect_products(table(), item, num_rows, rng);
    }
  }
  for (const std::int64_t num_rows : {72, 73, 96, 97, 113, 145, 257}) {
    for (const Case& item : cases_of(table(), {.rows = 40, .cols = 67, .fp8_block_cols = 64})) {
      expect_products(table(), item, num_rows, rng);
    }
  }
}

// Longer than the pieces in which staged weights and activations are taken; scale blocks narrower
// and wider than these.
TEST_P(Gemm, IsTheSumInDoubleForLongRows) {
  Rng rng(13);
  for (const std::int64_t block_cols : {33, 128, 300, 2600}) {
    for (const std::int64_t num_rows : {2, 7, 26}) {
      for (const Case& item : cases_of(
               table(),
               {.rows = 20, .cols = 2501, .fp8_block_rows = 128, .fp8_block_cols = block_cols})) {
        expect_products(table(), item, num_rows, rng);
      }
    }
  }
}

// Ten super blocks: more blocks than sums of activations are kept for.
TEST_P(Gemm, IsTheSumInDoubleForBlocksOfSuperBlocks) {
  Rng rng(23);
  for (const std::int64_t block_cols : {16, 32, 256}) {
    for (const std::int64_t num_rows : {1, 2, 5, 7, 26, 75}) {
      for (const Case& item :
           cases_of(table(), {.rows = 40, .cols = 2560, .fp8_block_cols = block_cols})) {
        if (item.shape.block.scale == ScaleFormat::kTwoLevel) {
          expect_products(table(), item, num_rows, rng);
        }
      }
    }
  }
}

TEST_P(Gemm, GathersTheNamedRows) {
  Rng rng(14);
  for (const Case& item : cases_of(table(), {.rows = 33, .cols = 40})) {
    SCOPED_TRACE(describe(item));
    const TestMatrix matrix(item.format, item.shape, rng);
    const Activations x(9, 40, 1, item.activation, rng);
    const std::vector<std::int32_t> rows = {8, 0, 3, 3, 7, 1, 8, 2};
    std::vector<float> all;
    table().gemm(gemm_args(matrix, x, 9, all, 33));
    std::vector<float> gathered;
    GemmArgs args = gemm_args(matrix, x, 8, gathered, 33);
    args.x_rows = rows.data();
    table().gemm(args);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto from = static_cast<std::size_t>(rows[i]) * 33;
      EXPECT_TRUE(std::equal(gathered.begin() + static_cast<std::ptrdiff_t>(i * 33),
                             gathered.begin() + static_cast<std::ptrdiff_t>((i + 1) * 33),
                             all.begin() + static_cast<std::ptrdiff_t>(from)));
    }
  }
}

TEST_P(Gemm, WritesTheOutputsOfItsPanelsOnly) {
  Rng rng(15);
  for (const Case& item : cases_of(table(), {.rows = 150, .cols = 24})) {
    const TestMatrix matrix(item.format, item.shape, rng);
    const Activations x(5, 24, 0, item.activation, rng);
    std::vector<float> all;
    table().gemm(gemm_args(matrix, x, 5, all, 150));
    for (std::int64_t begin = 0; begin < 10; ++begin) {
      for (std::int64_t end = begin; end <= 10; ++end) {
        std::vector<float> some;
        GemmArgs args = gemm_args(matrix, x, 5, some, 150);
        args.panel_begin = begin;
        args.panel_end = end;
        table().gemm(args);
        for (std::int64_t i = 0; i < 5 * 150; ++i) {
          const std::int64_t panel = i % 150 / 16;
          const float expected =
              panel >= begin && panel < end ? all[static_cast<std::size_t>(i)] : kUntouched;
          ASSERT_EQ(some[static_cast<std::size_t>(i)], expected)
              << describe(item) << " panels " << begin << " to " << end;
        }
      }
    }
  }
}

TEST_P(Gemm, GivesARowTheSameBitsInEveryBatch) {
  Rng rng(16);
  for (const Case& item : cases_of(table(), {.rows = 165, .cols = 309, .fp8_block_cols = 128})) {
    SCOPED_TRACE(describe(item));
    const TestMatrix matrix(item.format, item.shape, rng);
    const Activations x(60, 309, 1, item.activation, rng);
    std::vector<float> single(60 * 165);
    for (std::int32_t row = 0; row < 60; ++row) {
      std::vector<float> y;
      GemmArgs args = gemm_args(matrix, x, 1, y, 165);
      args.x_rows = &row;
      table().gemm(args);
      std::copy(y.begin(), y.end(), single.begin() + row * 165);
    }
    for (const std::int64_t batch : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 24, 60}) {
      std::vector<float> y;
      table().gemm(gemm_args(matrix, x, batch, y, 165));
      ASSERT_EQ(std::memcmp(y.data(), single.data(), y.size() * sizeof(float)), 0)
          << "batch " << batch;
    }
  }
}

// Long rows in large batches are taken in pieces of columns.
TEST_P(Gemm, GivesARowTheSameBitsInEveryLargeBatch) {
  Rng rng(20);
  for (const std::int64_t block_cols : {160, 1200}) {
    for (const Case& item :
         cases_of(table(), {.rows = 20, .cols = 1190, .fp8_block_cols = block_cols})) {
      SCOPED_TRACE(describe(item));
      const TestMatrix matrix(item.format, item.shape, rng);
      const Activations x(256, 1190, 1, item.activation, rng);
      std::vector<float> all;
      table().gemm(gemm_args(matrix, x, 256, all, 20));
      for (const std::int64_t batch : {1, 20, 97}) {
        std::vector<float> y;
        table().gemm(gemm_args(matrix, x, batch, y, 20));
        ASSERT_EQ(std::memcmp(y.data(), all.data(), y.size() * sizeof(float)), 0)
            << "batch " << batch;
      }
    }
  }
}

// The tolerance above is against the exact sum; levels and the scalar level are held to each other
// by the same one.
TEST_P(Gemm, AgreesWithTheScalarLevel) {
  Rng rng(17);
  for (const Case& item : cases_of(table(), {.rows = 64, .cols = 256})) {
    const TestMatrix matrix(item.format, item.shape, rng);
    const Activations x(9, 256, 0, item.activation, rng);
    std::vector<float> actual;
    std::vector<float> expected;
    table().gemm(gemm_args(matrix, x, 9, actual, 64));
    kernel_table(Isa::kScalar)->gemm(gemm_args(matrix, x, 9, expected, 64));
    for (std::int64_t i = 0; i < 9 * 64; ++i) {
      double magnitude = 0.0;
      (void)matrix.product(i % 64, x.row(i / 64), &magnitude);
      ASSERT_NEAR(actual[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(i)],
                  sum_tolerance(256, magnitude))
          << describe(item);
    }
  }
}

TEST_P(Gemm, LetsANanWeightReachItsOutputOnly) {
  Rng rng(18);
  std::vector<std::uint8_t> codes(32 * 64, 0x38);
  codes[5 * 64 + 40] = 0x7f;
  const float scale = 1.0F;
  const SourceMatrix source{.format = WeightFormat::kFp8,
                            .rows = 32,
                            .cols = 64,
                            .data = reinterpret_cast<const std::byte*>(codes.data()),
                            .row_stride = 64,
                            .scales = reinterpret_cast<const std::byte*>(&scale),
                            .scale_row_stride = 1,
                            .block_rows = 32,
                            .block_cols = 64};
  const std::int64_t stride = panel_bytes(WeightFormat::kFp8, 64, 64);
  AlignedBytes panels(2 * stride);
  pack_panel(source, 0, panels.data());
  pack_panel(source, 1, panels.data() + stride);
  const Activations x(10, 64, 0, ActivationFormat::kF32, rng);
  for (const std::int64_t num_rows : {1, 10}) {
    std::vector<float> y(static_cast<std::size_t>(num_rows * 32));
    table().gemm({.weight = {.data = panels.data(),
                             .format = WeightFormat::kFp8,
                             .rows = 32,
                             .cols = 64,
                             .block_cols = 64,
                             .panel_stride_bytes = stride},
                  .panel_begin = 0,
                  .panel_end = 2,
                  .x = x.data(),
                  .x_stride = 64,
                  .num_rows = num_rows,
                  .y = y.data(),
                  .y_stride = 32});
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), i % 32 == 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Gemm, testing::ValuesIn(levels_under_test()), level_test_name);

class GateUp : public LevelTest {};

struct GluCase {
  GluKind glu;
  float alpha;
  float limit;
};

constexpr GluCase kGlus[] = {{GluKind::kSilu, 1.0F, 0.0F}, {GluKind::kGptOss, 1.702F, 7.0F}};

struct Expectation {
  double value;
  double tolerance;
};

// In double, with the error that the two products may carry.
Expectation expected_hidden(const GluCase& glu, double gate, double up, double gate_error,
                            double up_error) {
  if (glu.glu == GluKind::kGptOss) {
    const auto limit = static_cast<double>(glu.limit);
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit) + 1.0;
    up_error += kF32Roundoff * std::fabs(up);
  }
  const auto alpha = static_cast<double>(glu.alpha);
  return {gate / (1.0 + std::exp(-alpha * gate)) * up,
          glu_tolerance(gate, up, alpha, gate_error, up_error)};
}

void expect_hidden(const KernelTable& table, const Case& item, const GluCase& glu,
                   std::int64_t num_rows, Rng& rng) {
  SCOPED_TRACE(describe(item) + ", " + std::to_string(num_rows) + " rows, glu " +
               std::to_string(static_cast<int>(glu.glu)));
  const std::int64_t size = item.shape.rows;
  const TestMatrix gate(item.format, item.shape, rng);
  const TestMatrix up(item.format, item.shape, rng);
  const Activations x(num_rows, item.shape.cols, 2, item.activation, rng);
  const std::vector<float> gate_bias = random_floats(rng, size);
  const std::vector<float> up_bias = random_floats(rng, size);
  const std::int64_t h_stride = size + 3;
  std::vector<float> h(static_cast<std::size_t>(num_rows * h_stride), kUntouched);
  std::vector<std::uint16_t> h_bf16(h.size(), 0xabcd);
  const bool is_bf16 = item.activation == ActivationFormat::kBf16;
  AlignedBytes storage;
  table.gemm_gate_up({.weight = TestMatrix::interleave(gate, up, &storage),
                      .pair_begin = 0,
                      .pair_end = gate.num_panels(),
                      .activation_format = item.activation,
                      .x = x.data(),
                      .x_stride = x.stride,
                      .num_rows = num_rows,
                      .glu = glu.glu,
                      .limit = glu.limit,
                      .alpha = glu.alpha,
                      .gate_bias = gate_bias.data(),
                      .up_bias = up_bias.data(),
                      .h = is_bf16 ? static_cast<void*>(h_bf16.data()) : h.data(),
                      .h_stride = h_stride,
                      .intermediate = size});
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (std::int64_t out = 0; out < size; ++out) {
      const auto at = static_cast<std::size_t>(out);
      double gate_magnitude = 0.0;
      double up_magnitude = 0.0;
      const double g =
          gate.product(out, x.row(i), &gate_magnitude) + static_cast<double>(gate_bias[at]);
      const double u = up.product(out, x.row(i), &up_magnitude) + static_cast<double>(up_bias[at]);
      const Expectation expected =
          expected_hidden(glu, g, u, sum_tolerance(item.shape.cols, gate_magnitude + 4.0),
                          sum_tolerance(item.shape.cols, up_magnitude + 4.0));
      const auto idx = static_cast<std::size_t>(i * h_stride + out);
      const auto actual = static_cast<double>(is_bf16 ? bf16_value(h_bf16[idx]) : h[idx]);
      const double rounding = is_bf16 ? kBf16Roundoff * std::fabs(expected.value) : 0.0;
      ASSERT_NEAR(actual, expected.value, 1.01 * (expected.tolerance + rounding))
          << "row " << i << " output " << out << " gate " << g << " up " << u;
    }
    for (std::int64_t out = size; out < h_stride; ++out) {
      const auto idx = static_cast<std::size_t>(i * h_stride + out);
      ASSERT_TRUE(h[idx] == kUntouched && h_bf16[idx] == 0xabcd);
    }
  }
}

TEST_P(GateUp, IsTheGatedProductInDouble) {
  Rng rng(21);
  for (const GluCase& glu : kGlus) {
    for (const std::int64_t size : {1, 16, 17, 75, 150}) {
      for (const std::int64_t num_rows : {1, 2, 3, 6, 7, 25}) {
        for (const Case& item :
             cases_of(table(), {.rows = size, .cols = 37, .fp8_block_cols = 16})) {
          expect_hidden(table(), item, glu, num_rows, rng);
        }
      }
    }
  }
}

// One weight of 1, so that gate and up are the activation itself.
TEST_P(GateUp, ActivationFunctionIsRightOverItsWholeRange) {
  constexpr std::int64_t kRows = 2000;
  AlignedBuffer<float> panels(2 * 16);
  std::fill_n(panels.data(), panels.size(), 1.0F);
  AlignedBuffer<float> x(kRows);
  std::vector<float> h(kRows);
  for (std::int64_t i = 0; i < kRows; ++i) {
    x[i] = 0.1F * static_cast<float>(i - kRows / 2);
  }
  for (const GluCase& glu : kGlus) {
    table().gemm_gate_up({.weight = {.data = reinterpret_cast<const std::byte*>(panels.data()),
                                     .rows = 32,
                                     .cols = 1,
                                     .panel_stride_bytes = 64},
                          .pair_begin = 0,
                          .pair_end = 1,
                          .x = x.data(),
                          .x_stride = 1,
                          .num_rows = kRows,
                          .glu = glu.glu,
                          .limit = glu.limit,
                          .alpha = glu.alpha,
                          .h = h.data(),
                          .h_stride = 1,
                          .intermediate = 1});
    for (std::int64_t i = 0; i < kRows; ++i) {
      const auto value = static_cast<double>(x[i]);
      const Expectation expected = expected_hidden(glu, value, value, 0.0, 0.0);
      // Beyond the range of exp the result is a number below 1e-30 instead of a smaller one.
      ASSERT_NEAR(static_cast<double>(h[static_cast<std::size_t>(i)]), expected.value,
                  expected.tolerance + 1e-30)
          << "x " << value;
    }
  }
}

TEST_P(GateUp, KeepsNan) {
  AlignedBuffer<float> panels(2 * 16);
  std::fill_n(panels.data(), panels.size(), 1.0F);
  AlignedBuffer<float> x(1);
  x[0] = NAN;
  for (const GluCase& glu : kGlus) {
    float h = 0.0F;
    table().gemm_gate_up({.weight = {.data = reinterpret_cast<const std::byte*>(panels.data()),
                                     .rows = 32,
                                     .cols = 1,
                                     .panel_stride_bytes = 64},
                          .pair_begin = 0,
                          .pair_end = 1,
                          .x = x.data(),
                          .x_stride = 1,
                          .num_rows = 1,
                          .glu = glu.glu,
                          .limit = glu.limit,
                          .alpha = glu.alpha,
                          .h = &h,
                          .h_stride = 1,
                          .intermediate = 1});
    EXPECT_TRUE(std::isnan(h));
  }
}

TEST_P(GateUp, GivesARowTheSameBitsInEveryBatchAndPairRange) {
  Rng rng(22);
  for (const Case& item : cases_of(table(), {.rows = 90, .cols = 61, .fp8_block_cols = 32})) {
    SCOPED_TRACE(describe(item));
    const TestMatrix gate(item.format, item.shape, rng);
    const TestMatrix up(item.format, item.shape, rng);
    const Activations x(26, 61, 1, item.activation, rng);
    AlignedBytes storage;
    std::vector<float> all(26 * 90);
    GateUpArgs args{.weight = TestMatrix::interleave(gate, up, &storage),
                    .pair_begin = 0,
                    .pair_end = gate.num_panels(),
                    .activation_format = item.activation,
                    .x = x.data(),
                    .x_stride = x.stride,
                    .num_rows = 26,
                    .h = all.data(),
                    .h_stride = 90,
                    .intermediate = 90};
    table().gemm_gate_up(args);
    for (const std::int64_t batch : {1, 2, 3, 5, 7, 13}) {
      std::vector<float> some(all.size());
      args.num_rows = batch;
      args.h = some.data();
      for (std::int64_t pair = 0; pair < gate.num_panels(); ++pair) {
        args.pair_begin = pair;
        args.pair_end = pair + 1;
        table().gemm_gate_up(args);
      }
      const std::size_t bytes =
          static_cast<std::size_t>(batch * 90) *
          (item.activation == ActivationFormat::kBf16 ? sizeof(std::uint16_t) : sizeof(float));
      ASSERT_EQ(std::memcmp(some.data(), all.data(), bytes), 0) << "batch " << batch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, GateUp, testing::ValuesIn(levels_under_test()), level_test_name);

}  // namespace
}  // namespace moe::kernels
