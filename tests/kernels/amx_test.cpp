// Goal: the AMX level computes what the tile instructions do, and its emulation computes the same
// bits as the hardware. Method: the emulated instructions against values worked out by hand; where
// the machine has AMX, hardware against emulation bit by bit. Products of all shapes:
// gemm_test.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/amx/blocking.hpp"
#include "kernels/cpu/numeric.hpp"
#include "tests/kernels/amx_hardware.hpp"
#include "tests/kernels/emulated.hpp"
#include "tests/kernels/emulated_tiles.hpp"
#include "tests/kernels/matrices.hpp"

namespace moe::kernels {
namespace {

using amx::EmulatedTiles;
using amx::StepMap;

struct TileOperands {
  alignas(64) std::array<std::uint16_t, 16 * 32> rows{};
  alignas(64) std::array<std::uint16_t, 16 * 32> weights{};
  alignas(64) std::array<float, 16 * 16> sums{};
};

void multiply_emulated(TileOperands& operands, std::int64_t num_rows) {
  EmulatedTiles::configure(amx::tile_config(num_rows));
  EmulatedTiles::load<0>(operands.sums.data());
  EmulatedTiles::load<4>(operands.rows.data());
  EmulatedTiles::load<6>(operands.weights.data());
  EmulatedTiles::dot_bf16<0, 4, 6>();
  EmulatedTiles::store<0>(operands.sums.data());
  EmulatedTiles::release();
}

// Element k of the row and of the weights of output 0.
void set_product(TileOperands& operands, std::size_t k, float x, float w) {
  operands.rows[k] = bf16_from_f32(x);
  operands.weights[k / 2 * 32 + k % 2] = bf16_from_f32(w);
}

TEST(EmulatedTile, AddsTheEvenAndTheOddProductsApart) {
  TileOperands operands;
  // One chain in order would lose the 1 beside 2^30 and end at 0; apart, the odd products keep it.
  set_product(operands, 0, 0x1p15F, 0x1p15F);
  set_product(operands, 1, 1.0F, 1.0F);
  set_product(operands, 2, -0x1p15F, 0x1p15F);
  multiply_emulated(operands, 1);
  EXPECT_EQ(operands.sums[0], 1.0F);
}

TEST(EmulatedTile, AddsToTheSumLast) {
  TileOperands operands;
  operands.sums[0] = 0x1p24F;
  // Each half would be lost beside 2^24; their sum is not.
  set_product(operands, 0, 1.0F, 1.0F);
  set_product(operands, 1, 1.0F, 1.0F);
  multiply_emulated(operands, 1);
  EXPECT_EQ(operands.sums[0], 0x1p24F + 2.0F);
}

TEST(EmulatedTile, TakesDenormalsAsZero) {
  TileOperands operands;
  operands.sums[0] = 0x1p-127F;                  // denormal sum
  set_product(operands, 0, 0x1p-127F, 0x1p10F);  // denormal input, result would be normal
  set_product(operands, 1, 0x1p-70F, 0x1p-60F);  // denormal product
  multiply_emulated(operands, 1);
  EXPECT_EQ(operands.sums[0], 0.0F);
}

TEST(EmulatedTile, TouchesOnlyTheConfiguredRows) {
  TileOperands operands;
  operands.rows.fill(bf16_from_f32(1.0F));
  operands.weights.fill(bf16_from_f32(1.0F));
  multiply_emulated(operands, 3);
  for (std::size_t i = 0; i < operands.sums.size(); ++i) {
    EXPECT_EQ(operands.sums[i], i < 3 * 16 ? 32.0F : 0.0F);
  }
}

struct Int8TileOperands {
  alignas(64) std::array<std::int8_t, 16 * 64> rows{};
  alignas(64) std::array<std::int8_t, 16 * 64> weights{};
  alignas(64) std::array<std::int32_t, 16 * 16> sums{};
};

void multiply_emulated(Int8TileOperands& operands, std::int64_t num_rows) {
  EmulatedTiles::configure(amx::tile_config(num_rows));
  EmulatedTiles::load<0>(operands.sums.data());
  EmulatedTiles::load<4>(operands.rows.data());
  EmulatedTiles::load<6>(operands.weights.data());
  EmulatedTiles::dot_int8<0, 4, 6>();
  EmulatedTiles::store<0>(operands.sums.data());
  EmulatedTiles::release();
}

// Row 2, output 5: bytes 4 k to 4 k + 3 of the row meet those of output 5 in row k of the weights.
TEST(EmulatedTile, MultipliesFoursOfSignedBytes) {
  Int8TileOperands operands;
  std::int32_t expected = 1000;
  operands.sums[2 * 16 + 5] = expected;
  for (std::size_t k = 0; k < 64; ++k) {
    const int x = static_cast<int>(k * 37 % 256) - 128;
    const int w = static_cast<int>(k * 91 % 256) - 128;
    operands.rows[2 * 64 + k] = static_cast<std::int8_t>(x);
    operands.weights[k / 4 * 64 + 5 * 4 + k % 4] = static_cast<std::int8_t>(w);
    expected += x * w;
  }
  multiply_emulated(operands, 4);
  for (std::size_t i = 0; i < operands.sums.size(); ++i) {
    EXPECT_EQ(operands.sums[i], i == 2 * 16 + 5 ? expected : 0) << i;
  }
}

TEST(EmulatedTile, IntegerSumsGoRoundAndBack) {
  Int8TileOperands operands;
  operands.rows.fill(-128);
  operands.weights.fill(-128);
  operands.sums.fill(std::numeric_limits<std::int32_t>::max());
  multiply_emulated(operands, 3);
  EXPECT_EQ(operands.sums[0], std::numeric_limits<std::int32_t>::min() + 64 * 128 * 128 - 1);
  EXPECT_EQ(operands.sums[3 * 16], std::numeric_limits<std::int32_t>::max());  // no such row
  operands.weights.fill(127);
  operands.rows.fill(127);
  multiply_emulated(operands, 3);
  operands.rows.fill(-127);
  multiply_emulated(operands, 3);
  EXPECT_EQ(operands.sums[0], std::numeric_limits<std::int32_t>::min() + 64 * 128 * 128 - 1);
}

TEST(EmulatedTileDeathTest, AnInstructionWithoutAConfigurationIsIllegal) {
  TileOperands operands;
  EmulatedTiles::release();
  EXPECT_DEATH(EmulatedTiles::load<0>(operands.sums.data()), "is_configured");
}

TEST(StepMap, CutsColumnsAtBlocks) {
  const StepMap map = StepMap::make(100, 40);  // 32 + 8, 32 + 8, 20
  EXPECT_EQ(map.num_steps, 5);
  const std::array<std::int64_t, 5> first = {0, 32, 40, 72, 80};
  const std::array<std::int64_t, 5> count = {32, 8, 32, 8, 20};
  const std::array<std::int64_t, 5> block_end = {2, 2, 4, 4, 5};
  for (std::size_t step = 0; step < 5; ++step) {
    const auto idx = static_cast<std::int64_t>(step);
    EXPECT_EQ(map.first_col(idx), first[step]);
    EXPECT_EQ(map.num_cols(idx), count[step]);
    EXPECT_EQ(map.block_end_step(idx), block_end[step]);
  }
  EXPECT_EQ(StepMap::make(0, 40).num_steps, 0);
  const StepMap wide = StepMap::make(100, 80, amx::kInt8StepCols);  // 64 + 16, 20
  EXPECT_EQ(wide.num_steps, 3);
  EXPECT_EQ(wide.first_col(1), 64);
  EXPECT_EQ(wide.num_cols(1), 16);
  EXPECT_EQ(wide.first_col(2), 80);
  EXPECT_EQ(wide.num_cols(2), 20);
}

TEST(RowTiles, AreOfEqualHeight) {
  for (std::int64_t num_rows = 1; num_rows <= amx::kMaxBlockRows; ++num_rows) {
    const amx::RowTiles tiles = amx::RowTiles::make(num_rows);
    EXPECT_LE(tiles.tile_rows, amx::kTileRows);
    EXPECT_LE(tiles.num_tiles, amx::kMaxTiles);
    EXPECT_GE(tiles.num_tiles * tiles.tile_rows, num_rows);
    EXPECT_LT((tiles.num_tiles - 1) * amx::kTileRows, num_rows);
  }
}

// A product with weights of the format, all panels at once.
struct AmxCase {
  WeightFormat format = WeightFormat::kBf16;
  MatrixShape shape;
  std::int64_t num_rows = 1;

  [[nodiscard]] std::vector<float> run(const KernelTable& table) const {
    Rng rng(31);
    const TestMatrix matrix(format, shape, rng);
    AlignedBuffer<std::uint16_t> x(num_rows * shape.cols);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      x[i] = bf16_from_f32(static_cast<float>(rng.next_normal()));
    }
    std::vector<float> y(static_cast<std::size_t>(num_rows * shape.rows));
    table.gemm({.weight = matrix.packed(),
                .panel_begin = 0,
                .panel_end = matrix.num_panels(),
                .activation_format = ActivationFormat::kBf16,
                .x = x.data(),
                .x_stride = shape.cols,
                .num_rows = num_rows,
                .y = y.data(),
                .y_stride = shape.rows});
    return y;
  }
};

std::vector<AmxCase> amx_cases() {
  std::vector<AmxCase> cases;
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp4,
                                    WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const std::int64_t cols : {1, 31, 64, 65, 530}) {
      for (const std::int64_t num_rows : {1, 16, 33, 100}) {
        cases.push_back({format, {.rows = 70, .cols = cols, .fp8_block_cols = 64}, num_rows});
      }
    }
  }
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    AmxCase item{format, {.rows = 70, .cols = 300, .fp8_block_cols = 128}, 20};
    item.shape.block = {ScaleFormat::kF16, OffsetKind::kZeroPoints};
    cases.push_back(item);
  }
  for (const OffsetKind offset : {OffsetKind::kCentred, OffsetKind::kTwoLevel}) {
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
      AmxCase item{format, {.rows = 70, .cols = 512, .fp8_block_cols = 32}, 20};
      item.shape.block = {ScaleFormat::kTwoLevel, offset};
      cases.push_back(item);
    }
  }
  return cases;
}

// The configuration is state of a thread: a kernel leaves none behind, on any thread.
TEST(EmulatedAmx, ReleasesTheTilesAndWorksOnAnyThread) {
  const AmxCase item{WeightFormat::kBf16, {.rows = 40, .cols = 65}, 20};
  const std::vector<float> here = item.run(emulated_amx_table());
  EXPECT_FALSE(EmulatedTiles::is_configured());
  for (int i = 0; i < 3; ++i) {
    std::vector<float> there;
    std::thread([&] { there = item.run(emulated_amx_table()); }).join();
    EXPECT_EQ(here, there);
  }
}

// Those whose weights are normal numbers, and NaN.
TEST(EmulatedAmx, TakesEveryMxfp4Scale) {
  std::vector<std::byte> codes(16 * 16, std::byte{0x22});  // 1.0
  std::vector<std::byte> scales(16);
  for (std::size_t row = 0; row < 16; ++row) {
    scales[row] = static_cast<std::byte>(row == 15 ? 255 : 1 + 18 * row);
  }
  const SourceMatrix source{.format = WeightFormat::kMxfp4,
                            .rows = 16,
                            .cols = 32,
                            .data = codes.data(),
                            .row_stride = 16,
                            .scales = scales.data(),
                            .scale_row_stride = 1};
  AlignedBytes panel(panel_bytes(WeightFormat::kMxfp4, 32, 0));
  pack_panel(source, 0, panel.data());
  AlignedBuffer<std::uint16_t> x(32);
  x[0] = bf16_from_f32(1.5F);
  std::array<float, 16> y{};
  std::array<float, 16> expected{};
  GemmArgs args{.weight = {.data = panel.data(),
                           .format = WeightFormat::kMxfp4,
                           .rows = 16,
                           .cols = 32,
                           .panel_stride_bytes = panel.size_bytes()},
                .panel_begin = 0,
                .panel_end = 1,
                .activation_format = ActivationFormat::kBf16,
                .x = x.data(),
                .x_stride = 32,
                .num_rows = 1,
                .y = y.data(),
                .y_stride = 16};
  emulated_amx_table().gemm(args);
  args.y = expected.data();
  kernel_table(Isa::kScalar)->gemm(args);
  for (std::size_t row = 0; row < 15; ++row) {
    EXPECT_EQ(y[row], expected[row]) << "row " << row;
  }
  EXPECT_TRUE(std::isnan(y[15]));
}

class AmxHardware : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!isa_supported(Isa::kAmx)) {
      const char* refusal = isa_refusal(Isa::kAmx);
      GTEST_SKIP() << (refusal != nullptr ? refusal : "this processor has no AMX");
    }
  }
};

TEST_F(AmxHardware, AConfigurationBuiltOnTheStackArrives) {
  for (int num_rows = 1; num_rows <= 16; ++num_rows) {
    const amx::TileConfig expected = amx::tile_config(num_rows);
    const std::array<std::byte, 64> found = hardware_config(num_rows);
    EXPECT_EQ(std::memcmp(found.data(), &expected, sizeof(expected)), 0) << num_rows << " rows";
  }
}

TEST_F(AmxHardware, ComputesTheBitsOfTheEmulation) {
  Rng rng(41);
  for (int num_rows = 1; num_rows <= 16; ++num_rows) {
    TileOperands emulated;
    // Every exponent, denormals too; no infinity and no NaN.
    const auto element = [&] {
      auto bits = static_cast<std::uint16_t>(rng.next_bits());
      return (bits & 0x7f80U) == 0x7f80U ? std::uint16_t{0} : bits;
    };
    std::generate(emulated.rows.begin(), emulated.rows.end(), element);
    std::generate(emulated.weights.begin(), emulated.weights.end(), element);
    TileOperands hardware = emulated;
    multiply_emulated(emulated, num_rows);
    hardware_product(num_rows, hardware.rows.data(), hardware.weights.data(), hardware.sums.data());
    for (std::size_t i = 0; i < emulated.sums.size(); ++i) {
      if (std::isnan(emulated.sums[i])) {
        EXPECT_TRUE(std::isnan(hardware.sums[i]));
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(emulated.sums[i]),
                  std::bit_cast<std::uint32_t>(hardware.sums[i]));
      }
    }
  }
}

TEST_F(AmxHardware, ComputesTheIntegersOfTheEmulation) {
  Rng rng(42);
  for (int num_rows = 1; num_rows <= 16; ++num_rows) {
    Int8TileOperands emulated;
    const auto code = [&] { return static_cast<std::int8_t>(rng.next_bits()); };
    std::generate(emulated.rows.begin(), emulated.rows.end(), code);
    std::generate(emulated.weights.begin(), emulated.weights.end(), code);
    Int8TileOperands hardware = emulated;
    multiply_emulated(emulated, num_rows);
    hardware_int8_product(num_rows, hardware.rows.data(), hardware.weights.data(),
                          hardware.sums.data());
    EXPECT_EQ(hardware.sums, emulated.sums) << num_rows << " rows";
  }
}

TEST_F(AmxHardware, ProductsHaveTheBitsOfTheEmulation) {
  for (const AmxCase& item : amx_cases()) {
    const std::vector<float> emulated = item.run(emulated_amx_table());
    const std::vector<float> hardware = item.run(*kernel_table(Isa::kAmx));
    ASSERT_EQ(std::memcmp(emulated.data(), hardware.data(), emulated.size() * sizeof(float)), 0)
        << format_name(item.format) << ", " << item.shape.cols << " columns, " << item.num_rows
        << " rows";
  }
}

// What another library's kernels do between two calls.
TEST_F(AmxHardware, AForeignConfigurationDoesNoHarm) {
  const AmxCase item{WeightFormat::kBf16, {.rows = 40, .cols = 65}, 20};
  const std::vector<float> before = item.run(*kernel_table(Isa::kAmx));
  (void)hardware_config(3);
  EXPECT_EQ(item.run(*kernel_table(Isa::kAmx)), before);
}

}  // namespace
}  // namespace moe::kernels
