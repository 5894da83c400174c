// Goal: packed panels lie in memory as kernels/api.hpp draws them. Method: every byte is looked up
// by the formula of the drawing.

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/matrices.hpp"

namespace moe::kernels {
namespace {

template <class T>
T element(const std::byte* at, std::int64_t idx) {
  T value;
  std::memcpy(&value, at + idx * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

TEST(PanelBytes, AreTheDrawingRoundedUpToCacheLines) {
  EXPECT_EQ(panel_bytes(WeightFormat::kF32, 3, 0), 3 * 64);
  EXPECT_EQ(panel_bytes(WeightFormat::kF16, 3, 0), 128);
  EXPECT_EQ(panel_bytes(WeightFormat::kBf16, 3, 0), 2 * 64);
  EXPECT_EQ(panel_bytes(WeightFormat::kFp8, 130, 128), 64 + 128 * 16 + 64 + 64);
  EXPECT_EQ(panel_bytes(WeightFormat::kMxfp4, 33, 0), (2 * 272 + 63) / 64 * 64);
  EXPECT_EQ(panel_bytes(WeightFormat::kMxfp4, 128, 0), 4 * 272);
  // f32 scales and int8 codes; f16 scales, zero points and nibbles, blocks filled up to groups.
  EXPECT_EQ(panel_bytes(WeightFormat::kInt8, 64, 32), 2 * (64 + 32 * 16));
  EXPECT_EQ(panel_bytes(WeightFormat::kInt8, 7, 7), 64 + 2 * 64);
  EXPECT_EQ(panel_bytes(WeightFormat::kInt4, 33, 33,
                        {.scale = ScaleFormat::kF16, .offset = OffsetKind::kZeroPoints}),
            (32 + 16 + 5 * 64 + 63) / 64 * 64);
  for (const WeightFormat format : kAllFormats) {
    EXPECT_EQ(panel_bytes(format, 0, 128), 0);
  }
}

// 71 columns: whole blocks of the vector path and a rest; 21 rows: a panel that is not full.
void expect_plain_bits(WeightFormat format, std::int64_t cols, std::int64_t col_stride, Rng& rng) {
  const TestMatrix matrix(
      format, {.rows = 21, .cols = cols, .row_padding = 2, .col_stride = col_stride}, rng);
  const std::int64_t bytes = format == WeightFormat::kF32 ? 4 : 2;
  const std::int64_t group = format == WeightFormat::kBf16 ? 2 : 1;
  for (std::int64_t row = 0; row < 32; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::byte* panel = matrix.packed().data + row / 16 * matrix.packed().panel_stride_bytes;
      const std::byte* at = panel + ((col / group * 16 + row % 16) * group + col % group) * bytes;
      const std::byte zero[4] = {};
      const std::byte* expected =
          row < 21
              ? matrix.source().data + (row * matrix.source().row_stride + col * col_stride) * bytes
              : zero;
      ASSERT_EQ(std::memcmp(at, expected, static_cast<std::size_t>(bytes)), 0)
          << format_name(format) << " row " << row << " col " << col;
    }
  }
}

TEST(PackPanel, KeepsTheBitsOfPlainFormatsAndPadsWithZero) {
  Rng rng(1);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16}) {
    for (const std::int64_t cols : {7, 64, 71}) {
      for (const std::int64_t col_stride : {1, 3}) {
        expect_plain_bits(format, cols, col_stride, rng);
      }
    }
  }
}

TEST(PackPanel, FollowsTheOddLastColumnOfBf16WithZero) {
  Rng rng(2);
  const TestMatrix matrix(WeightFormat::kBf16, {.rows = 16, .cols = 5}, rng);
  for (std::int64_t lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(element<std::uint16_t>(matrix.packed().data, (2 * 16 + lane) * 2 + 1), 0U);
  }
}

TEST(PackPanel, PutsFp8ScalesBeforeEachBlock) {
  Rng rng(3);
  const TestMatrix matrix(
      WeightFormat::kFp8,
      {.rows = 40, .cols = 21, .fp8_block_rows = 10, .fp8_block_cols = 8, .row_padding = 1}, rng);
  const SourceMatrix& source = matrix.source();
  for (std::int64_t row = 0; row < 40; ++row) {
    for (std::int64_t col = 0; col < 21; ++col) {
      const std::byte* block = matrix.packed().data +
                               row / 16 * matrix.packed().panel_stride_bytes +
                               col / 8 * (64 + 8 * 16);
      ASSERT_EQ(block[64 + col % 8 * 16 + row % 16], source.data[row * source.row_stride + col]);
      ASSERT_EQ(element<float>(block, row % 16),
                element<float>(source.scales, row / 10 * source.scale_row_stride + col / 8));
    }
  }
}

TEST(PackPanel, TurnsAnFp8NanIntoANanScale) {
  std::byte codes[2 * 4];
  std::memset(codes, 0x38, sizeof(codes));  // 1
  codes[5] = std::byte{0xff};               // row 1, column 1
  const float scales[2] = {2.0F, 2.0F};
  alignas(64) std::byte out[256];
  const SourceMatrix source{.format = WeightFormat::kFp8,
                            .rows = 2,
                            .cols = 4,
                            .data = codes,
                            .row_stride = 4,
                            .scales = reinterpret_cast<const std::byte*>(scales),
                            .scale_row_stride = 2,
                            .block_rows = 2,
                            .block_cols = 2};
  pack_panel(source, 0, out);
  EXPECT_EQ(element<float>(out, 0), 2.0F);
  EXPECT_TRUE(std::isnan(element<float>(out, 1)));
  EXPECT_EQ(element<float>(out + 96, 1), 2.0F);  // the next block of the row is sound
}

TEST(PackPanel, InterleavesMxfp4PairsAndScales) {
  Rng rng(4);
  const TestMatrix matrix(WeightFormat::kMxfp4, {.rows = 18, .cols = 45, .row_padding = 3}, rng);
  const SourceMatrix& source = matrix.source();
  for (std::int64_t row = 0; row < 18; ++row) {
    for (std::int64_t col = 0; col < 45; ++col) {
      const std::byte* group =
          matrix.packed().data + row / 16 * matrix.packed().panel_stride_bytes + col / 32 * 272;
      const auto pair = static_cast<std::uint32_t>(group[16 + col % 32 / 2 * 16 + row % 16]);
      const auto from = static_cast<std::uint32_t>(source.data[row * source.row_stride + col / 2]);
      const std::uint32_t shift = col % 2 == 0 ? 0U : 4U;
      ASSERT_EQ((pair >> shift) & 0xfU, (from >> shift) & 0xfU);
      ASSERT_EQ(group[row % 16], source.scales[row * source.scale_row_stride + col / 32]);
    }
  }
}

// Codes of 18 rows and 45 columns in blocks of 21: groups that are not full, a short last block and
// a panel with few rows.
struct CodedPanels {
  static constexpr std::int64_t kRows = 18;
  static constexpr std::int64_t kCols = 45;
  static constexpr std::int64_t kBlockCols = 21;

  CodedPanels(WeightFormat format, Rng& rng)
      : matrix(format,
               {.rows = kRows,
                .cols = kCols,
                .fp8_block_cols = kBlockCols,
                .block = {.scale = ScaleFormat::kF16, .offset = OffsetKind::kZeroPoints},
                .row_padding = 2},
               rng),
        block_bytes(48 + (format == WeightFormat::kInt8 ? 6 : 3) * 64) {}

  [[nodiscard]] const std::byte* block(std::int64_t row, std::int64_t col) const {
    return matrix.packed().data + row / 16 * matrix.packed().panel_stride_bytes +
           col / kBlockCols * block_bytes;
  }
  [[nodiscard]] std::byte source_code(std::int64_t row, std::int64_t col) const {
    return matrix.source().data[row * matrix.source().row_stride + col];
  }

  TestMatrix matrix;
  std::int64_t block_bytes;
};

TEST(PackPanel, PutsFourInt8ColumnsSideBySide) {
  Rng rng(5);
  const CodedPanels panels(WeightFormat::kInt8, rng);
  for (std::int64_t row = 0; row < CodedPanels::kRows; ++row) {
    for (std::int64_t col = 0; col < CodedPanels::kCols; ++col) {
      const std::byte* const codes = panels.block(row, col) + 48;
      const std::int64_t in_block = col % CodedPanels::kBlockCols;
      ASSERT_EQ(codes[in_block / 4 * 64 + row % 16 * 4 + in_block % 4],
                panels.source_code(row, col))
          << "row " << row << " col " << col;
    }
  }
}

TEST(PackPanel, PutsEightInt4ColumnsIntoFourBytes) {
  Rng rng(6);
  const CodedPanels panels(WeightFormat::kInt4, rng);
  for (std::int64_t row = 0; row < CodedPanels::kRows; ++row) {
    for (std::int64_t col = 0; col < CodedPanels::kCols; ++col) {
      const std::byte* const codes = panels.block(row, col) + 48;
      const std::int64_t in_block = col % CodedPanels::kBlockCols;
      const auto pair =
          std::to_integer<unsigned>(codes[in_block / 8 * 64 + row % 16 * 4 + in_block % 4]);
      ASSERT_EQ(in_block % 8 < 4 ? pair & 0xfU : pair >> 4U,
                std::to_integer<unsigned>(panels.source_code(row, col)))
          << "row " << row << " col " << col;
    }
  }
}

TEST(PackPanel, FillsGroupsOfCodesWithZero) {
  Rng rng(7);
  const CodedPanels int8(WeightFormat::kInt8, rng);
  const CodedPanels int4(WeightFormat::kInt4, rng);
  for (std::int64_t lane = 0; lane < 16; ++lane) {
    for (std::int64_t col = 21; col < 24; ++col) {
      EXPECT_EQ(int8.block(0, 0)[48 + 5 * 64 + lane * 4 + col % 4], std::byte{0});
      EXPECT_EQ(int4.block(0, 0)[48 + 2 * 64 + lane * 4 + col % 4] >> 4, std::byte{0});
    }
  }
}

// 512 columns in blocks of 32: two super blocks, whose f16 scales and offsets come first.
TEST(PackPanel, PutsSuperBlocksBeforeTheirBlocks) {
  Rng rng(8);
  const TestMatrix matrix(WeightFormat::kInt4,
                          {.rows = 18,
                           .cols = 512,
                           .fp8_block_cols = 32,
                           .block = {ScaleFormat::kTwoLevel, OffsetKind::kTwoLevel}},
                          rng);
  const SourceMatrix& source = matrix.source();
  constexpr std::int64_t kBlockBytes = 16 + 16 + 4 * 64;
  constexpr std::int64_t kSuperBytes = 64 + 8 * kBlockBytes;
  EXPECT_EQ(matrix.packed().panel_stride_bytes, 2 * kSuperBytes);
  for (std::int64_t row = 0; row < 18; ++row) {
    for (std::int64_t block = 0; block < 16; ++block) {
      const std::byte* const super = matrix.packed().data +
                                     row / 16 * matrix.packed().panel_stride_bytes +
                                     block / 8 * kSuperBytes;
      const std::byte* const header = super + 64 + block % 8 * kBlockBytes;
      const std::int64_t lane = row % 16;
      ASSERT_EQ(element<std::uint16_t>(super, lane),
                element<std::uint16_t>(source.super_scales, row * 2 + block / 8));
      ASSERT_EQ(element<std::uint16_t>(super, 16 + lane),
                element<std::uint16_t>(source.super_offsets, row * 2 + block / 8));
      const std::int64_t at = row * source.scale_row_stride + block;
      ASSERT_EQ(header[lane], source.scales[at]);
      ASSERT_EQ(header[16 + lane], source.offsets[at]);
      ASSERT_EQ(header[32 + lane * 4] & std::byte{0x0f},
                source.data[row * source.row_stride + block * 32]);
    }
  }
}

}  // namespace
}  // namespace moe::kernels
