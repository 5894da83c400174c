// Goal: products of int8 activations have the bits of the scalar level at every level, in every
// shape and batch, and are as far from those of the unrounded activations as rounding allows.
// Method: the scalar level against sums in double over the values that the codes stand for and over
// the unrounded ones, every other level against the scalar one bit by bit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/levels.hpp"
#include "tests/kernels/matrices.hpp"
#include "tests/kernels/tolerance.hpp"

namespace moe::kernels {
namespace {

constexpr float kUnwritten = -1.25e30F;

const KernelTable& definition() {
  return *kernel_table(Isa::kScalar);
}

// Rows of activations, as numbers and as codes.
struct CodedRows {
  CodedRows(std::int64_t num_rows, std::int64_t num_cols, std::int64_t columns_of_block, Rng& rng)
      : cols(num_cols),
        block_cols(std::min(columns_of_block, num_cols)),
        num_blocks(num_cols == 0 ? 0 : (num_cols + block_cols - 1) / block_cols),
        stride(num_cols == 0 ? 0 : int8_row_elements(num_cols, block_cols)),
        values(random_floats(rng, num_rows * num_cols)),
        codes(static_cast<std::size_t>(num_rows * stride)),
        scales(static_cast<std::size_t>(num_rows * num_blocks)),
        sums(scales.size()) {
    for (std::int64_t row = 0; row < num_rows && num_cols > 0; ++row) quantize(definition(), row);
  }

  void quantize(const KernelTable& table, std::int64_t row) {
    table.quantize_row({.x = values.data() + row * cols,
                        .cols = cols,
                        .block_cols = block_cols,
                        .codes = codes.data() + row * stride,
                        .scales = scales.data() + row * num_blocks,
                        .sums = sums.data() + row * num_blocks});
  }
  [[nodiscard]] std::int64_t block(std::int64_t row, std::int64_t col) const {
    return row * num_blocks + col / block_cols;
  }
  // What the codes of a row stand for.
  [[nodiscard]] std::vector<float> decoded(std::int64_t row) const {
    std::vector<float> out(static_cast<std::size_t>(cols));
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::int64_t at =
          row * stride + col / block_cols * int8_block_stride(block_cols) + col % block_cols;
      out[static_cast<std::size_t>(col)] = scales[static_cast<std::size_t>(block(row, col))] *
                                           static_cast<float>(codes[static_cast<std::size_t>(at)]);
    }
    return out;
  }
  template <class Args>
  void set(Args& args) const {
    args.activation_format = ActivationFormat::kInt8;
    args.x = codes.data();
    args.x_stride = stride;
    args.x_scales = scales.data();
    args.x_sums = sums.data();
    args.x_block_stride = num_blocks;
  }

  std::int64_t cols;
  std::int64_t block_cols;
  std::int64_t num_blocks;
  std::int64_t stride;
  std::vector<float> values;
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
};

struct Int8Case {
  WeightFormat format;
  MatrixShape shape;
};

std::vector<Int8Case> int8_cases(const MatrixShape& shape) {
  std::vector<Int8Case> cases;
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const BlockFormat block : with_two_levels({{ScaleFormat::kF32, OffsetKind::kCentred},
                                                    {ScaleFormat::kF16, OffsetKind::kZeroPoints},
                                                    {ScaleFormat::kBf16, OffsetKind::kCentred}},
                                                   shape)) {
      cases.push_back({format, shape});
      cases.back().shape.block = block;
    }
  }
  return cases;
}

std::string describe_int8(const Int8Case& item) {
  return format_name(item.format) + ", offsets " +
         std::to_string(static_cast<int>(item.shape.block.offset)) + ", blocks of " +
         std::to_string(item.shape.fp8_block_cols) + ", " + std::to_string(item.shape.rows) +
         " x " + std::to_string(item.shape.cols);
}

std::vector<float> products(const KernelTable& table, const TestMatrix& matrix, const CodedRows& x,
                            std::int64_t num_rows, const float* bias = nullptr,
                            const std::int32_t* x_rows = nullptr) {
  const std::int64_t y_stride = matrix.source().rows + 5;
  std::vector<float> y(static_cast<std::size_t>(num_rows * y_stride), kUnwritten);
  GemmArgs args;
  args.weight = matrix.packed();
  args.panel_end = matrix.num_panels();
  x.set(args);
  args.x_rows = x_rows;
  args.num_rows = num_rows;
  args.bias = bias;
  args.y = y.data();
  args.y_stride = y_stride;
  table.gemm_int8(args);
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

void expect_the_bits_of_scalar(const KernelTable& table, const Int8Case& item,
                               std::int64_t num_rows, Rng& rng) {
  const TestMatrix matrix(item.format, item.shape, rng);
  const CodedRows x(std::max<std::int64_t>(num_rows, 1), item.shape.cols, item.shape.fp8_block_cols,
                    rng);
  const std::vector<float> bias = random_floats(rng, item.shape.rows);
  const float* const added = num_rows % 2 == 0 ? bias.data() : nullptr;
  ASSERT_TRUE(same_bits(products(table, matrix, x, num_rows, added),
                        products(definition(), matrix, x, num_rows, added)))
      << describe_int8(item) << ", " << num_rows << " rows";
}

class Int8Gemm : public LevelTest {};

TEST_P(Int8Gemm, HasTheBitsOfTheScalarLevelForEverySize) {
  Rng rng(51);
  for (const std::int64_t rows : {1, 15, 16, 17, 33, 165}) {
    for (const std::int64_t cols : {0, 1, 2, 3, 4, 5, 15, 17, 31, 33, 70}) {
      for (const Int8Case& item : int8_cases({.rows = rows, .cols = cols, .fp8_block_cols = 10})) {
        expect_the_bits_of_scalar(table(), item, 1 + (rows + cols) % 9, rng);
      }
    }
  }
}

TEST_P(Int8Gemm, HasTheBitsOfTheScalarLevelForEveryRaggedBatch) {
  Rng rng(52);
  for (std::int64_t num_rows = 0; num_rows <= 33; ++num_rows) {
    for (const Int8Case& item : int8_cases({.rows = 150, .cols = 71, .fp8_block_cols = 32})) {
      expect_the_bits_of_scalar(table(), item, num_rows, rng);
    }
  }
  for (const std::int64_t num_rows : {48, 49, 72, 73, 97, 113, 145, 257}) {
    for (const Int8Case& item : int8_cases({.rows = 40, .cols = 67, .fp8_block_cols = 67})) {
      expect_the_bits_of_scalar(table(), item, num_rows, rng);
    }
  }
}

// More super blocks than a piece takes.
TEST_P(Int8Gemm, HasTheBitsOfTheScalarLevelForBlocksOfSuperBlocks) {
  Rng rng(59);
  for (const std::int64_t block_cols : {16, 32, 256}) {
    for (const std::int64_t num_rows : {1, 2, 5, 7, 26, 75}) {
      for (const Int8Case& item :
           int8_cases({.rows = 70, .cols = 2560, .fp8_block_cols = block_cols})) {
        if (item.shape.block.scale == ScaleFormat::kTwoLevel) {
          expect_the_bits_of_scalar(table(), item, num_rows, rng);
        }
      }
    }
  }
}

// Longer than the pieces in which columns are taken; blocks narrower and wider than these.
TEST_P(Int8Gemm, HasTheBitsOfTheScalarLevelForLongRows) {
  Rng rng(53);
  for (const std::int64_t block_cols : {1, 33, 128, 300, 2600}) {
    for (const std::int64_t num_rows : {2, 7, 26}) {
      for (const Int8Case& item :
           int8_cases({.rows = 20, .cols = 2501, .fp8_block_cols = block_cols})) {
        expect_the_bits_of_scalar(table(), item, num_rows, rng);
      }
    }
  }
  for (const Int8Case& item : int8_cases({.rows = 17, .cols = 14336, .fp8_block_cols = 14336})) {
    expect_the_bits_of_scalar(table(), item, 1, rng);
  }
}

TEST_P(Int8Gemm, GathersTheNamedRows) {
  Rng rng(54);
  const std::vector<std::int32_t> rows = {8, 0, 3, 3, 7, 1, 8, 2};
  for (const Int8Case& item : int8_cases({.rows = 33, .cols = 40, .fp8_block_cols = 16})) {
    const TestMatrix matrix(item.format, item.shape, rng);
    const CodedRows x(9, 40, 16, rng);
    EXPECT_TRUE(same_bits(products(table(), matrix, x, 8, nullptr, rows.data()),
                          products(definition(), matrix, x, 8, nullptr, rows.data())))
        << describe_int8(item);
  }
}

TEST_P(Int8Gemm, WritesTheOutputsOfItsPanelsOnly) {
  Rng rng(55);
  for (const Int8Case& item : int8_cases({.rows = 150, .cols = 24, .fp8_block_cols = 24})) {
    const TestMatrix matrix(item.format, item.shape, rng);
    const CodedRows x(8, 24, 24, rng);
    const std::vector<float> all = products(definition(), matrix, x, 8);
    for (std::int64_t begin = 0; begin < 10; begin += 3) {
      for (std::int64_t end = begin; end <= 10; ++end) {
        std::vector<float> y(all.size(), kUnwritten);
        GemmArgs args;
        args.weight = matrix.packed();
        args.panel_begin = begin;
        args.panel_end = end;
        x.set(args);
        args.num_rows = 8;
        args.y = y.data();
        args.y_stride = 155;
        table().gemm_int8(args);
        for (std::int64_t i = 0; i < 8 * 155; ++i) {
          const std::int64_t panel = i % 155 / 16;
          const auto at = static_cast<std::size_t>(i);
          ASSERT_EQ(y[at], panel >= begin && panel < end ? all[at] : kUnwritten)
              << describe_int8(item) << " panels " << begin << " to " << end;
        }
      }
    }
  }
}

// Codes of the largest magnitude everywhere: no step on the way may saturate or leave 32 bits.
TEST_P(Int8Gemm, IsExactForTheLargestCodesInTheWidestBlock) {
  constexpr std::int64_t kCols = kMaxInt8BlockCols;
  for (const bool is_int4 : {false, true}) {
    for (const OffsetKind offset : {OffsetKind::kCentred, OffsetKind::kZeroPoints}) {
      std::vector<std::byte> codes(static_cast<std::size_t>(16 * kCols),
                                   is_int4 ? std::byte{0} : std::byte{0x80});
      const std::vector<float> scales(16, 1.0F);
      const std::vector<std::int8_t> zeros(16, 127);
      SourceMatrix source;
      source.format = is_int4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
      source.rows = 16;
      source.cols = kCols;
      source.data = codes.data();
      source.row_stride = kCols;
      source.scales = reinterpret_cast<const std::byte*>(scales.data());
      source.scale_row_stride = 1;
      source.block_cols = kCols;
      source.block.offset = offset;
      source.offsets = reinterpret_cast<const std::byte*>(zeros.data());
      AlignedBytes panel(panel_bytes(source.format, kCols, kCols, source.block));
      pack_panel(source, 0, panel.data());
      const std::vector<std::int8_t> x(static_cast<std::size_t>(kCols), 127);
      const float x_scale = 1.0F;
      const auto x_sum = static_cast<std::int32_t>(127 * kCols);
      for (const std::int64_t num_rows : {1, 9}) {
        const std::vector<std::int32_t> x_rows(static_cast<std::size_t>(num_rows), 0);
        std::vector<float> y(static_cast<std::size_t>(16 * num_rows));
        table().gemm_int8({.weight = {.data = panel.data(),
                                      .format = source.format,
                                      .rows = 16,
                                      .cols = kCols,
                                      .block_cols = kCols,
                                      .panel_stride_bytes = panel.size_bytes(),
                                      .block = source.block},
                           .panel_end = 1,
                           .activation_format = ActivationFormat::kInt8,
                           .x = x.data(),
                           .x_stride = kCols,
                           .x_rows = x_rows.data(),
                           .x_scales = &x_scale,
                           .x_sums = &x_sum,
                           .x_block_stride = 1,
                           .num_rows = num_rows,
                           .y = y.data(),
                           .y_stride = 16});
        const std::int64_t zero = offset == OffsetKind::kZeroPoints ? 127 : is_int4 ? 8 : 0;
        const std::int64_t sum = ((is_int4 ? 0 : -128) - zero) * 127 * kCols;
        for (const float value : y) {
          ASSERT_EQ(value, static_cast<float>(sum)) << is_int4 << " " << num_rows << " rows";
        }
      }
    }
  }
}

TEST_P(Int8Gemm, KeepsWhatIsNotFinite) {
  Rng rng(56);
  for (const float odd : {std::numeric_limits<float>::infinity(), NAN}) {
    const TestMatrix matrix(WeightFormat::kInt8, {.rows = 16, .cols = 64, .fp8_block_cols = 32},
                            rng);
    CodedRows x(8, 64, 32, rng);
    x.values[3 * 64 + 40] = odd;
    x.quantize(table(), 3);
    const std::vector<float> y = products(table(), matrix, x, 8);
    for (std::size_t i = 0; i < 8 * 21; ++i) {
      if (i % 21 < 16) {
        EXPECT_EQ(std::isnan(y[i]), i / 21 == 3) << i;
      }
    }
  }
}

// The gated product of the sums that gemm_int8 gives.
TEST_P(Int8Gemm, GateAndUpAreTheGatedProduct) {
  Rng rng(57);
  for (const GluKind glu : {GluKind::kSilu, GluKind::kGptOss}) {
    for (const Int8Case& item : int8_cases({.rows = 75, .cols = 37, .fp8_block_cols = 16})) {
      for (const std::int64_t num_rows : {1, 6, 7, 25}) {
        const TestMatrix gate(item.format, item.shape, rng);
        const TestMatrix up(item.format, item.shape, rng);
        const CodedRows x(num_rows, 37, 16, rng);
        const std::vector<float> bias = random_floats(rng, 75);
        AlignedBytes storage;
        std::vector<float> h(static_cast<std::size_t>(num_rows * 80), kUnwritten);
        GateUpArgs args;
        args.weight = TestMatrix::interleave(gate, up, &storage);
        args.pair_end = gate.num_panels();
        x.set(args);
        args.num_rows = num_rows;
        args.glu = glu;
        args.limit = 7.0F;
        args.alpha = 1.702F;
        args.gate_bias = bias.data();
        args.up_bias = bias.data();
        args.h = h.data();
        args.h_stride = 80;
        args.intermediate = 75;
        table().gemm_gate_up_int8(args);
        const std::vector<float> g = products(definition(), gate, x, num_rows, bias.data());
        const std::vector<float> u = products(definition(), up, x, num_rows, bias.data());
        for (std::int64_t i = 0; i < num_rows * 80; ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (i % 80 >= 75) {
            ASSERT_EQ(h[at], kUnwritten);
            continue;
          }
          auto a = static_cast<double>(g[at]);
          auto b = static_cast<double>(u[at]);
          double up_error = 0.0;
          if (glu == GluKind::kGptOss) {
            a = std::min(a, 7.0);
            b = std::clamp(b, -7.0, 7.0) + 1.0;
            up_error = kF32Roundoff * std::fabs(b);
          }
          const double alpha = glu == GluKind::kSilu ? 1.0 : static_cast<double>(args.alpha);
          ASSERT_NEAR(static_cast<double>(h[at]), a / (1.0 + std::exp(-alpha * a)) * b,
                      glu_tolerance(a, b, alpha, 0.0, up_error))
              << describe_int8(item) << ", " << num_rows << " rows";
        }
      }
    }
  }
}

TEST_P(Int8Gemm, GateAndUpAreTheSameInEveryBatchAndPairRange) {
  Rng rng(58);
  for (const Int8Case& item : int8_cases({.rows = 90, .cols = 61, .fp8_block_cols = 32})) {
    const TestMatrix gate(item.format, item.shape, rng);
    const TestMatrix up(item.format, item.shape, rng);
    const CodedRows x(26, 61, 32, rng);
    AlignedBytes storage;
    std::vector<float> all(26 * 90);
    GateUpArgs args;
    args.weight = TestMatrix::interleave(gate, up, &storage);
    args.pair_end = gate.num_panels();
    x.set(args);
    args.num_rows = 26;
    args.h = all.data();
    args.h_stride = 90;
    args.intermediate = 90;
    table().gemm_gate_up_int8(args);
    for (const std::int64_t batch : {1, 2, 5, 7, 13}) {
      std::vector<float> some(all.size());
      args.num_rows = batch;
      args.h = some.data();
      for (std::int64_t pair = 0; pair < gate.num_panels(); ++pair) {
        args.pair_begin = pair;
        args.pair_end = pair + 1;
        table().gemm_gate_up_int8(args);
      }
      some.resize(static_cast<std::size_t>(batch * 90));
      ASSERT_TRUE(same_bits(some, {all.begin(), all.begin() + batch * 90})) << batch;
      args.pair_begin = 0;
      args.pair_end = gate.num_panels();
    }
  }
}

// Sums are exact integers, so rounding enters with the factors and once per block.
TEST(Int8Definition, IsTheSumInDoubleOfWhatTheCodesStandFor) {
  Rng rng(61);
  for (const std::int64_t block_cols : {10, 32, 128, 500}) {
    for (const Int8Case& item :
         int8_cases({.rows = 33, .cols = 300, .fp8_block_cols = block_cols})) {
      const TestMatrix matrix(item.format, item.shape, rng);
      const CodedRows x(5, 300, block_cols, rng);
      const std::vector<float> y = products(definition(), matrix, x, 5);
      for (std::int64_t i = 0; i < 5 * 33; ++i) {
        double magnitude = 0.0;
        const double expected = matrix.product(i % 33, x.decoded(i / 33).data(), &magnitude);
        ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i / 33 * 38 + i % 33)]),
                    expected, sum_tolerance(x.num_blocks, magnitude))
            << describe_int8(item);
      }
    }
  }
}

// A code is at most half a step from the activation, the step 1 / 127 of the largest of the block:
// a product is off by at most the sum of |weight| * step / 2. Errors of random sign stay far
// below that: their mean square is the sum of weight^2 * step^2 / 12, and few leave four times its
// root.
TEST(Int8Definition, IsOffByTheRoundingOfTheActivations) {
  Rng rng(62);
  const MatrixShape shape{.rows = 64, .cols = 256, .fp8_block_cols = 32};
  const TestMatrix matrix(WeightFormat::kInt8, shape, rng);
  const CodedRows x(8, 256, 32, rng);
  const std::vector<float> y = products(definition(), matrix, x, 8);
  int num_beyond_four_sigma = 0;
  double largest_in_sigmas = 0.0;
  for (std::int64_t i = 0; i < 8 * 64; ++i) {
    double bound = 0.0;
    double variance = 0.0;
    for (std::int64_t col = 0; col < 256; ++col) {
      const auto step =
          static_cast<double>(x.scales[static_cast<std::size_t>(x.block(i / 64, col))]);
      const double term = std::fabs(matrix.value(i % 64, col)) * step;
      bound += term / 2.0;
      variance += term * term / 12.0;
    }
    double magnitude = 0.0;
    const double exact = matrix.product(i % 64, x.values.data() + i / 64 * 256, &magnitude);
    const double error =
        std::fabs(static_cast<double>(y[static_cast<std::size_t>(i / 64 * 69 + i % 64)]) - exact);
    ASSERT_LE(error, 1.0001 * bound + sum_tolerance(256, magnitude));
    largest_in_sigmas = std::max(largest_in_sigmas, error / std::sqrt(variance));
    num_beyond_four_sigma += error > 4.0 * std::sqrt(variance) ? 1 : 0;
  }
  EXPECT_LE(num_beyond_four_sigma, 2);
  EXPECT_GT(largest_in_sigmas, 1.0);  // rounding takes place
}

TEST(Int8Definition, TakesMatricesOfIntegersInOrder) {
  PackedMatrix weight{.format = WeightFormat::kInt8, .rows = 16, .cols = 64, .block_cols = 32};
  EXPECT_TRUE(takes_int8(weight));
  weight.format = WeightFormat::kInt4;
  EXPECT_TRUE(takes_int8(weight));
  const std::vector<std::int32_t> order(64);
  weight.column_order = order.data();
  EXPECT_FALSE(takes_int8(weight));
  weight.column_order = nullptr;
  weight.cols = weight.block_cols = kMaxInt8BlockCols;
  EXPECT_TRUE(takes_int8(weight));
  weight.cols = weight.block_cols = kMaxInt8BlockCols + 1;
  EXPECT_FALSE(takes_int8(weight));
  weight.cols = 64;  // a block that is wider than the matrix
  EXPECT_TRUE(takes_int8(weight));
  EXPECT_EQ(int8_block_cols(weight), 64);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16,
                                    WeightFormat::kFp8, WeightFormat::kMxfp4}) {
    weight.format = format;
    EXPECT_FALSE(takes_int8(weight));
  }
}

TEST(Int8Definition, RowsAreCutIntoBlocksOfFours) {
  EXPECT_EQ(int8_block_stride(32), 32);
  EXPECT_EQ(int8_block_stride(33), 36);
  EXPECT_EQ(int8_row_elements(70, 32), 96);
  EXPECT_EQ(int8_row_elements(66, 33), 72);
}

class Int8Codes : public LevelTest {
 protected:
  struct Result {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;

    [[nodiscard]] bool operator==(const Result& other) const {
      return codes == other.codes && sums == other.sums && same_bits(scales, other.scales);
    }
  };
  static Result quantized(const KernelTable& table, const std::vector<float>& x,
                          std::int64_t block_cols) {
    const auto cols = static_cast<std::int64_t>(x.size());
    const auto blocks = static_cast<std::size_t>((cols + block_cols - 1) / block_cols);
    // What lies behind the last block is not touched.
    const std::size_t used = static_cast<std::size_t>(int8_row_elements(cols, block_cols));
    Result out{std::vector<std::int8_t>(used + 16, 99), std::vector<float>(blocks),
               std::vector<std::int32_t>(blocks)};
    table.quantize_row({.x = x.data(),
                        .cols = cols,
                        .block_cols = block_cols,
                        .codes = out.codes.data(),
                        .scales = out.scales.data(),
                        .sums = out.sums.data()});
    return out;
  }
};

TEST_P(Int8Codes, HaveTheBitsOfTheScalarLevel) {
  Rng rng(63);
  for (const std::int64_t cols : {1, 3, 4, 15, 16, 17, 31, 32, 33, 64, 100, 257}) {
    for (const std::int64_t block_cols : {1, 4, 10, 16, 32, 33, 128, 300}) {
      std::vector<float> x = random_floats(rng, cols);
      for (float& value : x) {
        value = std::ldexp(value, static_cast<int>(rng.next_below(20)) - 10);
      }
      ASSERT_EQ(quantized(table(), x, block_cols), quantized(definition(), x, block_cols))
          << cols << " columns, blocks of " << block_cols;
    }
  }
}

TEST_P(Int8Codes, AreTheNearestStepsOfTheLargestMagnitude) {
  // A step of 1: halves go to the even neighbour.
  const std::vector<float> x = {-127.0F, 0.5F, 1.5F, -2.5F, 3.49F, -3.51F, 126.5F};
  const Result found = quantized(table(), x, 8);
  const std::vector<std::int8_t> codes = {-127, 0, 2, -2, 3, -4, 126, 0, 99};
  EXPECT_TRUE(std::equal(codes.begin(), codes.end(), found.codes.begin()));
  EXPECT_EQ(found.scales[0], 1.0F);
  EXPECT_EQ(found.sums[0], -2);
}

TEST_P(Int8Codes, OfBlocksThatHaveNoneAreZero) {
  const float tiny = 0x1p-101F;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, -0.0F, tiny, -tiny, 1.0F,      NAN,  2.0F,  3.0F,
                                1.0F, 1.0F,  1.0F, 1.0F,  -infinity, 1.0F, 1e38F, 0.0F};
  const Result found = quantized(table(), x, 4);
  EXPECT_EQ(found.scales[0], 0.0F);
  EXPECT_TRUE(std::isnan(found.scales[1]));
  EXPECT_EQ(found.scales[2], 1.0F / 127.0F);
  EXPECT_TRUE(std::isnan(found.scales[3]));
  for (const std::size_t block : {0U, 1U, 3U}) {
    EXPECT_EQ(found.sums[block], 0);
    EXPECT_TRUE(std::all_of(found.codes.begin() + static_cast<std::ptrdiff_t>(4 * block),
                            found.codes.begin() + static_cast<std::ptrdiff_t>(4 * block + 4),
                            [](std::int8_t code) { return code == 0; }));
  }
  EXPECT_EQ(found.sums[2], 4 * 127);
}

// The extremes of f32: no division on the way leaves its range.
TEST_P(Int8Codes, TakeEveryMagnitude) {
  for (const float largest : {0x1p-100F, 1e-20F, 1.0F, 1e20F, std::numeric_limits<float>::max()}) {
    const Result found = quantized(table(), {largest, -largest, largest / 4.0F, 0.0F}, 4);
    EXPECT_EQ(found.codes[0], 127) << largest;
    EXPECT_EQ(found.codes[1], -127) << largest;
    EXPECT_EQ(found.codes[2], 32) << largest;
    EXPECT_EQ(found.scales[0], largest / 127.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Int8Gemm, testing::ValuesIn(levels_under_test()), level_test_name);
INSTANTIATE_TEST_SUITE_P(Levels, Int8Codes, testing::ValuesIn(levels_under_test()),
                         level_test_name);

}  // namespace
}  // namespace moe::kernels
