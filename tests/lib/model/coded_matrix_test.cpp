// Integer formats: codes and scales as a packer gets them mean the numbers of the plain reader, and
// both mean what the format's definition says, on words and blocks written out by hand here.

#include "lib/model/coded_matrix.hpp"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {
namespace {

float f16_element(const std::vector<std::byte>& bytes, std::size_t idx) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + idx * 2, 2);
  return f16_to_f32(bits);
}

// Blocks of 256 columns.
std::size_t super_of(const CodedFormat& format, std::size_t idx) {
  return idx * static_cast<std::size_t>(format.block_cols) / 256;
}

float scale_at(const CodedRows& rows, const CodedFormat& format, std::size_t idx) {
  const Dtype dtype = format.scale_dtype;
  if (dtype == Dtype::kI8) {
    return f16_element(rows.super_scales, super_of(format, idx)) *
           static_cast<float>(static_cast<std::int8_t>(rows.scales[idx]));
  }
  if (dtype == Dtype::kF32) {
    float value = 0.0F;
    std::memcpy(&value, rows.scales.data() + idx * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, rows.scales.data() + idx * 2, 2);
  return dtype == Dtype::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

double offset_at(const CodedRows& rows, const CodedFormat& format, std::size_t idx, double scale) {
  switch (format.offset) {
    case CodeOffset::kCentred:
      return format.bits == 4 ? -8.0 * scale : 0.0;
    case CodeOffset::kZeroPoints:
      return -scale * static_cast<double>(static_cast<std::int8_t>(rows.offsets[idx]));
    case CodeOffset::kTwoLevel:
      return -static_cast<double>(f16_element(rows.super_offsets, super_of(format, idx))) *
             static_cast<double>(static_cast<std::int8_t>(rows.offsets[idx]));
  }
  return 0.0;
}

// The two readers agree on every element.
void expect_consistent(const MatrixView& view) {
  const auto format = coded_format(view);
  ASSERT_TRUE(format.has_value());
  CodedRows rows;
  read_coded_rows(view, 0, view.rows, rows);
  const std::int64_t blocks = (view.cols + format->block_cols - 1) / format->block_cols;
  std::vector<float> expected(static_cast<std::size_t>(view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    read_matrix_row(view, row, expected.data());
    for (std::int64_t k = 0; k < view.cols; ++k) {
      const auto idx = static_cast<std::size_t>(row * blocks + k / format->block_cols);
      const auto scale = static_cast<double>(scale_at(rows, *format, idx));
      const std::byte code = rows.codes[static_cast<std::size_t>(row * view.cols + k)];
      const double value = format->bits == 4 ? static_cast<double>(std::to_integer<int>(code))
                                             : static_cast<double>(static_cast<std::int8_t>(code));
      const std::int64_t col = view.column_order == nullptr ? k : view.column_order[k];
      const double found = scale * value + offset_at(rows, *format, idx, scale);
      const auto wanted = static_cast<double>(expected[static_cast<std::size_t>(col)]);
      ASSERT_NEAR(found, wanted, 1e-6 * (std::fabs(scale * value) + std::fabs(wanted)) + 1e-30)
          << view.name << " row " << row << " column " << col;
    }
  }
}

std::vector<std::byte> random_bytes(Rng& rng, std::size_t count) {
  std::vector<std::byte> out(count);
  for (std::byte& value : out) value = static_cast<std::byte>(rng.next_bits() & 0xffU);
  return out;
}

// Finite f16 of moderate size.
std::uint16_t f16_scale(Rng& rng) {
  return static_cast<std::uint16_t>((rng.next_bits() & 0x83ffU) | (9U << 10U));
}

std::vector<std::byte> f16_scales(Rng& rng, std::size_t count) {
  std::vector<std::byte> out(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = f16_scale(rng);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

struct Words {
  MatrixView view;
  std::vector<std::byte> codes, scales, zeros;
  std::vector<std::int32_t> order;
};

// [rows 16, cols 64], groups of 32.
Words make_words(MatrixEncoding encoding, std::int32_t bits, std::uint64_t seed) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kCols = 64;
  Rng rng(seed);
  Words words;
  words.codes = random_bytes(rng, static_cast<std::size_t>(kRows * kCols * bits / 8));
  words.scales = f16_scales(rng, 2 * kRows);
  words.zeros = random_bytes(rng, static_cast<std::size_t>(2 * kRows * bits / 8));
  MatrixView& view = words.view;
  view.name = "words";
  view.encoding = encoding;
  view.rows = kRows;
  view.cols = kCols;
  view.data = words.codes.data();
  view.code_bits = bits;
  view.block_cols = 32;
  view.scales = words.scales.data();
  view.scale_dtype = Dtype::kF16;
  view.zeros = words.zeros.data();
  if (encoding == MatrixEncoding::kIntRows) {
    view.row_stride = kCols * bits / 8;
    view.scale_row_stride = 2;
    view.zero_stride = 2;
  } else {
    view.scale_row_stride = 1;
    view.scale_col_stride = kRows;
    view.zero_stride = kRows * bits / 32;
  }
  return words;
}

TEST(CodedMatrix, CodesAndNumbersAgreeForEveryIntegerFormat) {
  for (const MatrixEncoding encoding : {MatrixEncoding::kIntRows, MatrixEncoding::kGptq}) {
    for (const std::int32_t bits : {4, 8}) expect_consistent(make_words(encoding, bits, 7).view);
  }
  expect_consistent(make_words(MatrixEncoding::kAwq, 4, 8).view);
}

// Bytes of words are stored 128 above the code, and so are the zero points, packed along the rows.
TEST(CodedMatrix, RowsOfWordsHoldEightBitsAboveZero) {
  Words words = make_words(MatrixEncoding::kIntRows, 8, 12);
  words.view.dtype = Dtype::kI32;
  expect_consistent(words.view);
  const std::uint16_t one = 0x3c00;
  for (std::size_t i = 0; i < 2 * 16; ++i) std::memcpy(words.scales.data() + 2 * i, &one, 2);
  // Row 5, columns 0 and 63 (groups 0 and 1): -128 and 127, around zero points -3 and 4.
  words.codes[5 * 64] = std::byte{0};
  words.codes[5 * 64 + 63] = std::byte{255};
  words.zeros[(5 / 4 * 2 + 0) * 4 + 5 % 4] = std::byte{128 - 3};
  words.zeros[(5 / 4 * 2 + 1) * 4 + 5 % 4] = std::byte{128 + 4};
  std::vector<float> row(64);
  read_matrix_row(words.view, 5, row.data());
  EXPECT_EQ(row[0], -128.0F + 3.0F);
  EXPECT_EQ(row[63], 127.0F - 4.0F);
}

TEST(CodedMatrix, ColumnOrderMovesCodesNotNumbers) {
  Words words = make_words(MatrixEncoding::kGptq, 4, 9);
  std::vector<std::int32_t> order(64);
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int32_t>(k * 37 % 64);
  words.view.column_order = order.data();
  expect_consistent(words.view);
}

// One word by hand: nibble r % 8 of word r / 8 is input r; stored zero 15 is zero point 0.
TEST(CodedMatrix, GptqZeroPointsAreStoredLessOneAndWrap) {
  Words words = make_words(MatrixEncoding::kGptq, 4, 10);
  std::fill(words.codes.begin(), words.codes.end(), std::byte{0});
  const std::uint32_t word = 0x76543210U;
  std::memcpy(words.codes.data(), &word, 4);  // inputs 0 to 7 of output 0
  const std::uint16_t one = 0x3c00;
  std::memcpy(words.scales.data(), &one, 2);
  words.zeros[0] = std::byte{0xff};
  words.view.zero_bias = 1;
  std::vector<float> row(64);
  read_matrix_row(words.view, 0, row.data());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(row[i], static_cast<float>(i));
  words.zeros[0] = std::byte{0xf7};  // 7 + 1
  read_matrix_row(words.view, 0, row.data());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(row[i], static_cast<float>(i) - 8.0F);
}

TEST(CodedMatrix, AwqColumnsOfAWordStandInItsOrder) {
  Words words = make_words(MatrixEncoding::kAwq, 4, 11);
  std::fill(words.codes.begin(), words.codes.end(), std::byte{0});
  std::fill(words.zeros.begin(), words.zeros.end(), std::byte{0});
  const std::uint32_t word = 0x76543210U;  // nibble k holds output [0 2 4 6 1 3 5 7][k]
  std::memcpy(words.codes.data(), &word, 4);
  const std::uint16_t one = 0x3c00;
  for (std::size_t row = 0; row < 8; ++row) std::memcpy(words.scales.data() + 2 * row, &one, 2);
  constexpr float kExpected[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::vector<float> row(64);
  for (std::int64_t r = 0; r < 8; ++r) {
    read_matrix_row(words.view, r, row.data());
    EXPECT_EQ(row[0], kExpected[r]);
  }
}

MatrixView gguf_view(MatrixEncoding encoding, std::int64_t rows, std::int64_t cols,
                     const std::vector<std::byte>& data) {
  MatrixView view;
  view.encoding = encoding;
  view.name = storage_name(view);
  view.rows = rows;
  view.cols = cols;
  view.data = data.data();
  view.row_stride = gguf_row_bytes(encoding, cols);
  return view;
}

TEST(CodedMatrix, CodesAndNumbersAgreeForEveryBlockType) {
  struct BlockType {
    MatrixEncoding encoding;
    std::size_t block_bytes;
    std::vector<std::size_t> scales_at;  // f16
  };
  const std::vector<BlockType> types = {{MatrixEncoding::kGgufQ8_0, 34, {0}},
                                        {MatrixEncoding::kGgufQ4_0, 18, {0}},
                                        {MatrixEncoding::kGgufQ4K, 144, {0, 2}},
                                        {MatrixEncoding::kGgufQ6K, 210, {208}}};
  Rng rng(12);
  for (const BlockType& type : types) {
    std::vector<std::byte> data =
        random_bytes(rng, static_cast<std::size_t>(3 * gguf_row_bytes(type.encoding, 512)));
    for (std::size_t at = 0; at < data.size(); at += type.block_bytes) {
      for (const std::size_t scale : type.scales_at) {
        const std::uint16_t bits = f16_scale(rng);
        std::memcpy(data.data() + at + scale, &bits, 2);
      }
    }
    expect_consistent(gguf_view(type.encoding, 3, 512, data));
  }
}

// Low nibbles are the first half of a block, not the even columns.
TEST(CodedMatrix, HalvesOfABlockShareTheBytesOfGguf) {
  std::vector<std::byte> q4(18);
  const std::uint16_t one = 0x3c00;
  std::memcpy(q4.data(), &one, 2);
  q4[2] = std::byte{0xf0};
  std::vector<float> row(32);
  read_matrix_row(gguf_view(MatrixEncoding::kGgufQ4_0, 1, 32, q4), 0, row.data());
  EXPECT_EQ(row[0], -8.0F);
  EXPECT_EQ(row[1], -8.0F);
  EXPECT_EQ(row[16], 7.0F);

  std::vector<std::byte> mx(17);
  mx[0] = std::byte{128};  // 2
  mx[1] = std::byte{0x72};
  const MatrixView view = gguf_view(MatrixEncoding::kGgufMxfp4, 1, 32, mx);
  read_matrix_row(view, 0, row.data());
  EXPECT_EQ(row[0], 2.0F);    // code 2: 1
  EXPECT_EQ(row[16], 12.0F);  // code 7: 6
  std::vector<std::byte> pairs;
  std::vector<std::byte> scales;
  read_mxfp4_rows(view, 0, 1, pairs, scales);
  EXPECT_EQ(pairs[0], std::byte{0x02});
  EXPECT_EQ(pairs[8], std::byte{0x07});
  EXPECT_EQ(scales[0], std::byte{128});
}

}  // namespace
}  // namespace moe::model
