#include "lib/model/coded_matrix.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::model {
namespace {

constexpr std::int64_t kGgufBlock = 32;
constexpr std::int64_t kSuperBlock = 256;
constexpr std::int64_t kQ6Group = 16;
constexpr std::int64_t kQ6KScales = 192;  // bytes of a block before them
constexpr std::int64_t kQ6KSuperScale = 208;
constexpr std::int64_t kQ4KBytes = 144;
constexpr std::int64_t kQ6KBytes = 210;
constexpr std::int64_t kMxfp4Bytes = 17;

template <typename T>
T load(const std::byte* base, std::int64_t idx) {
  T value{};
  std::memcpy(&value, base + idx * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* base, std::int64_t idx, T value) {
  std::memcpy(base + idx * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

std::uint32_t byte_at(const std::byte* base, std::int64_t idx) {
  return std::to_integer<std::uint32_t>(base[idx]);
}

float f16_at(const std::byte* at) {
  return f16_to_f32(load<std::uint16_t>(at, 0));
}

float scale_value(const std::byte* scales, Dtype dtype, std::int64_t idx) {
  if (dtype == Dtype::kF32) return load<float>(scales, idx);
  const auto bits = load<std::uint16_t>(scales, idx);
  return dtype == Dtype::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

std::int64_t num_blocks(std::int64_t cols, std::int64_t block_cols) {
  return div_ceil(cols, block_cols);
}

// ---- codes in words or rows of their own ----

// Nibble of an AWQ word that holds the code of row (or zero point of row) r.
std::uint32_t awq_shift(std::int64_t row) {
  constexpr std::array<std::uint32_t, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};
  return 4 * kNibble[static_cast<std::size_t>(row % 8)];
}

// Codes and zero points in bytes of their own, around zero, rather than in words above it.
bool is_signed_bytes(const MatrixView& view) {
  return view.code_bits == 8 && view.dtype != Dtype::kI32;
}

// The stored code of natural column `col`: 4 bits as they are, 8 bits signed around zero.
std::int32_t stored_code(const MatrixView& view, std::int64_t row, std::int64_t col) {
  const std::int64_t per_word = 32 / view.code_bits;
  switch (view.encoding) {
    case MatrixEncoding::kIntRows: {
      const std::byte* const at = view.data + row * view.row_stride;
      if (view.code_bits == 8) {
        return is_signed_bytes(view) ? load<std::int8_t>(at, col)
                                     : static_cast<std::int32_t>(byte_at(at, col)) - 128;
      }
      const std::uint32_t pair = byte_at(at, col / 2);
      return static_cast<std::int32_t>(col % 2 == 0 ? pair & 0xfU : pair >> 4U);
    }
    case MatrixEncoding::kGptq: {
      const auto word = load<std::uint32_t>(view.data, col / per_word * view.rows + row);
      const auto shift = static_cast<std::uint32_t>(col % per_word * view.code_bits);
      if (view.code_bits == 4) return static_cast<std::int32_t>((word >> shift) & 0xfU);
      return static_cast<std::int32_t>((word >> shift) & 0xffU) - 128;
    }
    default: {
      MOE_CHECK(view.encoding == MatrixEncoding::kAwq);
      const auto word = load<std::uint32_t>(view.data, col * (view.rows / 8) + row / 8);
      return static_cast<std::int32_t>((word >> awq_shift(row)) & 0xfU);
    }
  }
}

// In the range of the codes: 4 bits 0 to 15, 8 bits -128 to 127.
std::int32_t zero_point(const MatrixView& view, std::int64_t row, std::int64_t block) {
  if (view.zeros == nullptr) return view.code_bits == 4 ? 8 : 0;
  const std::int64_t per_word = 32 / view.code_bits;
  const std::uint32_t mask = view.code_bits == 4 ? 0xfU : 0xffU;
  std::uint32_t stored = 0;
  switch (view.encoding) {
    case MatrixEncoding::kIntRows:
      if (is_signed_bytes(view)) {
        return load<std::int8_t>(view.zeros, row * view.zero_stride + block);
      }
      stored = load<std::uint32_t>(view.zeros, row / per_word * view.zero_stride + block) >>
               static_cast<std::uint32_t>(row % per_word * view.code_bits);
      break;
    case MatrixEncoding::kGptq:
      stored = load<std::uint32_t>(view.zeros, block * view.zero_stride + row / per_word) >>
               static_cast<std::uint32_t>(row % per_word * view.code_bits);
      break;
    default:
      stored =
          load<std::uint32_t>(view.zeros, block * view.zero_stride + row / 8) >> awq_shift(row);
  }
  // The sum wraps within the bits of a code: GPTQ stores z - 1, and 15 for z = 0.
  const auto value =
      static_cast<std::int32_t>((stored + static_cast<std::uint32_t>(view.zero_bias)) & mask);
  return view.code_bits == 4 ? value : value - 128;
}

std::int64_t natural_column(const MatrixView& view, std::int64_t position) {
  return view.column_order == nullptr ? position : view.column_order[position];
}

void read_int_row(const MatrixView& view, std::int64_t row, float* out) {
  for (std::int64_t begin = 0; begin < view.cols; begin += view.block_cols) {
    const std::int64_t block = begin / view.block_cols;
    const float scale = scale_value(view.scales, view.scale_dtype,
                                    row * view.scale_row_stride + block * view.scale_col_stride);
    const std::int32_t zero = zero_point(view, row, block);
    const std::int64_t end = std::min<std::int64_t>(view.cols, begin + view.block_cols);
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t col = natural_column(view, k);
      out[col] = static_cast<float>(stored_code(view, row, col) - zero) * scale;
    }
  }
}

// Codes of a block of rows with the format's switch outside of the loops.
void read_int_codes(const MatrixView& view, std::int64_t row_begin, std::int64_t num_rows,
                    std::byte* out) {
  const auto for_each_code = [&](auto&& code_at) {
    // Columns outermost: words of GPTQ and AWQ hold neighbouring rows.
    for (std::int64_t k = 0; k < view.cols; ++k) {
      const std::int64_t col = natural_column(view, k);
      for (std::int64_t i = 0; i < num_rows; ++i) {
        out[i * view.cols + k] = static_cast<std::byte>(code_at(row_begin + i, col));
      }
    }
  };
  if (view.code_bits == 4 && view.encoding == MatrixEncoding::kGptq) {
    for_each_code([&](std::int64_t row, std::int64_t col) {
      return (load<std::uint32_t>(view.data, col / 8 * view.rows + row) >> (col % 8 * 4)) & 0xfU;
    });
  } else if (view.encoding == MatrixEncoding::kAwq) {
    const std::int64_t words = view.rows / 8;
    for_each_code([&](std::int64_t row, std::int64_t col) {
      return (load<std::uint32_t>(view.data, col * words + row / 8) >> awq_shift(row)) & 0xfU;
    });
  } else {
    for_each_code([&](std::int64_t row, std::int64_t col) { return stored_code(view, row, col); });
  }
}

void read_int_rows(const MatrixView& view, const CodedFormat& format, std::int64_t row_begin,
                   std::int64_t num_rows, CodedRows& out) {
  const std::int64_t blocks = num_blocks(view.cols, view.block_cols);
  read_int_codes(view, row_begin, num_rows, out.codes.data());
  const std::int64_t scale_bytes = dtype_bits(format.scale_dtype) / 8;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t from =
          (row_begin + i) * view.scale_row_stride + block * view.scale_col_stride;
      std::memcpy(out.scales.data() + (i * blocks + block) * scale_bytes,
                  view.scales + from * scale_bytes, static_cast<std::size_t>(scale_bytes));
      if (format.offset == CodeOffset::kZeroPoints) {
        out.offsets[static_cast<std::size_t>(i * blocks + block)] =
            static_cast<std::byte>(zero_point(view, row_begin + i, block));
      }
    }
  }
}

// ---- block types of GGUF ----

struct Q4KFactors {
  std::uint32_t scale;
  std::uint32_t minimum;
};

// The factors of scale and minimum of group `group` of 32 values: six bits each, the last four
// groups with their upper two bits in the bytes of the first four.
Q4KFactors q4k_factors(const std::byte* block, std::int64_t group) {
  const std::byte* const packed = block + 4;
  if (group < 4) {
    return {byte_at(packed, group) & 63U, byte_at(packed, group + 4) & 63U};
  }
  return {(byte_at(packed, group + 4) & 0xfU) | ((byte_at(packed, group - 4) >> 6U) << 4U),
          (byte_at(packed, group + 4) >> 4U) | ((byte_at(packed, group) >> 6U) << 4U)};
}

// Pairs of groups share bytes: the first in the low nibbles, the second in the high ones.
std::uint32_t q4k_code(const std::byte* block, std::int64_t i) {
  const std::uint32_t pair = byte_at(block + 16, i / 64 * 32 + i % 32);
  return i % 64 < 32 ? pair & 0xfU : pair >> 4U;
}

// 128 values share 64 bytes of low nibbles and 32 bytes of upper bit pairs.
std::int32_t q6k_code(const std::byte* block, std::int64_t i) {
  const std::int64_t half = i / 128;
  const std::int64_t quarter = i % 128 / 32;
  const std::int64_t lane = i % 32;
  const std::uint32_t low = byte_at(block, half * 64 + quarter % 2 * 32 + lane);
  const std::uint32_t high = byte_at(block + 128, half * 32 + lane);
  const std::uint32_t nibble = quarter < 2 ? low & 0xfU : low >> 4U;
  const std::uint32_t upper = (high >> static_cast<std::uint32_t>(2 * quarter)) & 3U;
  return static_cast<std::int32_t>(nibble | (upper << 4U)) - 32;
}

float q6k_scale(const std::byte* block, std::int64_t group) {
  return f16_at(block + kQ6KSuperScale) *
         static_cast<float>(load<std::int8_t>(block + kQ6KScales, group));
}

// Value j of a block of 32 in the low nibble of byte j, value j + 16 in the high one.
std::uint32_t half_nibble(const std::byte* bytes, std::int64_t j) {
  return j < 16 ? byte_at(bytes, j) & 0xfU : byte_at(bytes, j - 16) >> 4U;
}

void read_gguf_block(MatrixEncoding encoding, const std::byte* block, float* out) {
  constexpr std::array<float, 16> kE2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  switch (encoding) {
    case MatrixEncoding::kGgufQ8_0:
      for (std::int64_t j = 0; j < kGgufBlock; ++j) {
        out[j] = static_cast<float>(load<std::int8_t>(block + 2, j)) * f16_at(block);
      }
      return;
    case MatrixEncoding::kGgufQ4_0:
      for (std::int64_t j = 0; j < kGgufBlock; ++j) {
        const auto code = static_cast<std::int32_t>(half_nibble(block + 2, j));
        out[j] = static_cast<float>(code - 8) * f16_at(block);
      }
      return;
    case MatrixEncoding::kGgufQ4K:
      for (std::int64_t group = 0; group < kSuperBlock / kGgufBlock; ++group) {
        const Q4KFactors factors = q4k_factors(block, group);
        const float scale = f16_at(block) * static_cast<float>(factors.scale);
        const float minimum = f16_at(block + 2) * static_cast<float>(factors.minimum);
        for (std::int64_t i = group * kGgufBlock; i < (group + 1) * kGgufBlock; ++i) {
          out[i] = scale * static_cast<float>(q4k_code(block, i)) - minimum;
        }
      }
      return;
    case MatrixEncoding::kGgufQ6K:
      for (std::int64_t i = 0; i < kSuperBlock; ++i) {
        out[i] = static_cast<float>(q6k_code(block, i)) * q6k_scale(block, i / kQ6Group);
      }
      return;
    default:
      MOE_CHECK(encoding == MatrixEncoding::kGgufMxfp4);
      for (std::int64_t j = 0; j < kGgufBlock; ++j) {
        out[j] =
            std::ldexp(kE2m1[half_nibble(block + 1, j)], static_cast<int>(byte_at(block, 0)) - 127);
      }
  }
}

struct GgufLayout {
  std::int64_t values;
  std::int64_t bytes;
};

GgufLayout gguf_layout(MatrixEncoding encoding) {
  switch (encoding) {
    case MatrixEncoding::kGgufQ8_0:
      return {kGgufBlock, 34};
    case MatrixEncoding::kGgufQ4_0:
      return {kGgufBlock, 18};
    case MatrixEncoding::kGgufQ4K:
      return {kSuperBlock, kQ4KBytes};
    case MatrixEncoding::kGgufQ6K:
      return {kSuperBlock, kQ6KBytes};
    case MatrixEncoding::kGgufMxfp4:
      return {kGgufBlock, kMxfp4Bytes};
    default:
      MOE_CHECK(false);
  }
}

// Where a block's codes go, and what belongs to them.
struct BlockOut {
  std::byte* codes;
  std::byte* scales;
  std::byte* offsets;        // null where the format has none
  std::byte* super_scales;   // two-level
  std::byte* super_offsets;  // null where the format has none
};

void read_q4k_codes(const std::byte* block, const BlockOut& out) {
  for (std::int64_t i = 0; i < kSuperBlock; ++i) {
    out.codes[i] = static_cast<std::byte>(q4k_code(block, i));
  }
  for (std::int64_t group = 0; group < kSuperBlock / kGgufBlock; ++group) {
    const Q4KFactors factors = q4k_factors(block, group);
    out.scales[group] = static_cast<std::byte>(factors.scale);
    out.offsets[group] = static_cast<std::byte>(factors.minimum);
  }
  std::memcpy(out.super_scales, block, 2);
  std::memcpy(out.super_offsets, block + 2, 2);
}

void read_q6k_codes(const std::byte* block, const BlockOut& out) {
  for (std::int64_t i = 0; i < kSuperBlock; ++i) {
    out.codes[i] = static_cast<std::byte>(q6k_code(block, i));
  }
  std::memcpy(out.scales, block + kQ6KScales, kSuperBlock / kQ6Group);
  std::memcpy(out.super_scales, block + kQ6KSuperScale, 2);
}

void read_gguf_codes(MatrixEncoding encoding, const std::byte* block, const BlockOut& out) {
  switch (encoding) {
    case MatrixEncoding::kGgufQ8_0:
      std::memcpy(out.codes, block + 2, kGgufBlock);
      std::memcpy(out.scales, block, 2);
      return;
    case MatrixEncoding::kGgufQ4_0:
      for (std::int64_t j = 0; j < kGgufBlock; ++j) {
        out.codes[j] = static_cast<std::byte>(half_nibble(block + 2, j));
      }
      std::memcpy(out.scales, block, 2);
      return;
    case MatrixEncoding::kGgufQ4K:
      return read_q4k_codes(block, out);
    default:
      MOE_CHECK(encoding == MatrixEncoding::kGgufQ6K);
      read_q6k_codes(block, out);
  }
}

void read_gguf_rows(const MatrixView& view, const CodedFormat& format, std::int64_t row_begin,
                    std::int64_t num_rows, CodedRows& out) {
  const GgufLayout layout = gguf_layout(view.encoding);
  const std::int64_t row_blocks = view.cols / layout.values;
  const std::int64_t groups = layout.values / format.block_cols;
  const std::int64_t scale_bytes = dtype_bits(format.scale_dtype) / 8;
  const auto at = [](std::vector<std::byte>& bytes, std::int64_t offset) {
    return bytes.empty() ? nullptr : bytes.data() + offset;
  };
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::byte* const row = view.data + (row_begin + i) * view.row_stride;
    for (std::int64_t idx = 0; idx < row_blocks; ++idx) {
      const std::int64_t block = i * row_blocks + idx;
      read_gguf_codes(view.encoding, row + idx * layout.bytes,
                      {.codes = at(out.codes, block * layout.values),
                       .scales = at(out.scales, block * groups * scale_bytes),
                       .offsets = at(out.offsets, block * groups),
                       .super_scales = at(out.super_scales, block * 2),
                       .super_offsets = at(out.super_offsets, block * 2)});
    }
  }
}

}  // namespace

std::optional<CodedFormat> coded_format(const MatrixView& view) {
  switch (view.encoding) {
    case MatrixEncoding::kPlain:
    case MatrixEncoding::kFp8Block:
    case MatrixEncoding::kMxfp4:
    case MatrixEncoding::kGgufMxfp4:
      return std::nullopt;
    case MatrixEncoding::kIntRows:
    case MatrixEncoding::kGptq:
    case MatrixEncoding::kAwq:
      return CodedFormat{view.code_bits, view.block_cols, view.scale_dtype,
                         view.zeros == nullptr ? CodeOffset::kCentred : CodeOffset::kZeroPoints};
    case MatrixEncoding::kGgufQ8_0:
      return CodedFormat{8, kGgufBlock, Dtype::kF16, CodeOffset::kCentred};
    case MatrixEncoding::kGgufQ4_0:
      return CodedFormat{4, kGgufBlock, Dtype::kF16, CodeOffset::kCentred};
    case MatrixEncoding::kGgufQ4K:
      return CodedFormat{4, kGgufBlock, Dtype::kI8, CodeOffset::kTwoLevel};
    case MatrixEncoding::kGgufQ6K:
      return CodedFormat{8, kQ6Group, Dtype::kI8, CodeOffset::kCentred};
  }
  MOE_CHECK(false);
}

void read_coded_rows(const MatrixView& view, std::int64_t row_begin, std::int64_t num_rows,
                     CodedRows& out) {
  const auto format = coded_format(view);
  MOE_CHECK(format.has_value() && row_begin >= 0 && row_begin + num_rows <= view.rows);
  const std::int64_t blocks = num_rows * num_blocks(view.cols, format->block_cols);
  const bool has_offsets = format->offset != CodeOffset::kCentred;
  const std::int64_t super_bytes =
      format->scale_dtype == Dtype::kI8 ? num_rows * (view.cols / kSuperBlock) * 2 : 0;
  out.codes.resize(static_cast<std::size_t>(num_rows * view.cols));
  out.scales.resize(static_cast<std::size_t>(blocks * dtype_bits(format->scale_dtype) / 8));
  out.offsets.resize(static_cast<std::size_t>(has_offsets ? blocks : 0));
  out.super_scales.resize(static_cast<std::size_t>(super_bytes));
  out.super_offsets.resize(static_cast<std::size_t>(has_offsets ? super_bytes : 0));
  if (view.encoding == MatrixEncoding::kIntRows || view.encoding == MatrixEncoding::kGptq ||
      view.encoding == MatrixEncoding::kAwq) {
    read_int_rows(view, *format, row_begin, num_rows, out);
  } else {
    read_gguf_rows(view, *format, row_begin, num_rows, out);
  }
}

void read_mxfp4_rows(const MatrixView& view, std::int64_t row_begin, std::int64_t num_rows,
                     std::vector<std::byte>& pairs, std::vector<std::byte>& scales) {
  MOE_CHECK(view.encoding == MatrixEncoding::kGgufMxfp4);
  const std::int64_t blocks = view.cols / kGgufBlock;
  pairs.resize(static_cast<std::size_t>(num_rows * view.cols / 2));
  scales.resize(static_cast<std::size_t>(num_rows * blocks));
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (std::int64_t idx = 0; idx < blocks; ++idx) {
      const std::byte* const block =
          view.data + (row_begin + i) * view.row_stride + idx * kMxfp4Bytes;
      scales[static_cast<std::size_t>(i * blocks + idx)] = block[0];
      for (std::int64_t j = 0; j < kGgufBlock; j += 2) {
        pairs[static_cast<std::size_t>((i * blocks + idx) * (kGgufBlock / 2) + j / 2)] =
            static_cast<std::byte>(half_nibble(block + 1, j) | half_nibble(block + 1, j + 1) << 4U);
      }
    }
  }
}

void read_coded_row(const MatrixView& view, std::int64_t row, float* out) {
  if (view.encoding == MatrixEncoding::kIntRows || view.encoding == MatrixEncoding::kGptq ||
      view.encoding == MatrixEncoding::kAwq) {
    read_int_row(view, row, out);
    return;
  }
  const GgufLayout layout = gguf_layout(view.encoding);
  const std::byte* const data = view.data + row * view.row_stride;
  for (std::int64_t idx = 0; idx < view.cols / layout.values; ++idx) {
    read_gguf_block(view.encoding, data + idx * layout.bytes, out + idx * layout.values);
  }
}

std::string storage_name(const MatrixView& view) {
  const auto groups = [&view] {
    const std::string what = view.scale_row_stride == 0 ? "one scale"
                             : view.block_cols >= view.cols
                                 ? "a scale a row"
                                 : fmt::format("groups of {}", view.block_cols);
    return fmt::format("int{}, {}{}{}", view.code_bits, what,
                       view.zeros == nullptr ? "" : ", zero points",
                       view.column_order == nullptr ? "" : ", activation order");
  };
  switch (view.encoding) {
    case MatrixEncoding::kPlain:
      return std::string(dtype_name(view.dtype));
    case MatrixEncoding::kFp8Block:
      return view.scale_row_stride == 0                             ? "F8_E4M3, one scale"
             : view.block_rows == 1 && view.block_cols >= view.cols ? "F8_E4M3, a scale a row"
                                                                    : "F8_E4M3 in blocks";
    case MatrixEncoding::kMxfp4:
    case MatrixEncoding::kGgufMxfp4:
      return "MXFP4";
    case MatrixEncoding::kIntRows:
      return groups();
    case MatrixEncoding::kGptq:
      return "GPTQ " + groups();
    case MatrixEncoding::kAwq:
      return "AWQ " + groups();
    case MatrixEncoding::kGgufQ8_0:
      return "Q8_0";
    case MatrixEncoding::kGgufQ4_0:
      return "Q4_0";
    case MatrixEncoding::kGgufQ4K:
      return "Q4_K";
    case MatrixEncoding::kGgufQ6K:
      return "Q6_K";
  }
  MOE_CHECK(false);
}

bool has_byte_rows(MatrixEncoding encoding) {
  switch (encoding) {
    case MatrixEncoding::kMxfp4:
    case MatrixEncoding::kIntRows:
    case MatrixEncoding::kGgufQ8_0:
    case MatrixEncoding::kGgufQ4_0:
    case MatrixEncoding::kGgufQ4K:
    case MatrixEncoding::kGgufQ6K:
    case MatrixEncoding::kGgufMxfp4:
      return true;
    case MatrixEncoding::kPlain:
    case MatrixEncoding::kFp8Block:
    case MatrixEncoding::kGptq:
    case MatrixEncoding::kAwq:
      return false;
  }
  MOE_CHECK(false);
}

std::int64_t gguf_row_bytes(MatrixEncoding encoding, std::int64_t cols) {
  const GgufLayout layout = gguf_layout(encoding);
  return div_exact(cols, layout.values) * layout.bytes;
}

}  // namespace moe::model
