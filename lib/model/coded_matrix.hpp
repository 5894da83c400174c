#pragma once

// Matrices of integer codes with scales per block of columns: how each format lays them out, as
// codes for a packer and as numbers. Formats: compressed-tensors, GPTQ, AWQ, and the block types of
// GGUF (ggml-common.h of ggml-org/ggml).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/bound_model.hpp"

namespace moe::model {

enum class CodeOffset : std::uint8_t {
  kCentred,     // 8 bits: signed codes; 4 bits: code 8 is zero
  kZeroPoints,  // scale * (code - zero point)
  kTwoLevel,    // scale * code - offset; with two-level scales only
};

struct CodedFormat {
  std::int32_t bits = 8;
  std::int64_t block_cols = 32;
  // kI8: two-level scales, an int8 of the block times an f16 of 256 columns.
  Dtype scale_dtype = Dtype::kF16;
  CodeOffset offset = CodeOffset::kCentred;

  [[nodiscard]] bool operator==(const CodedFormat&) const = default;
};

// nullopt: not a matrix of codes with scales.
[[nodiscard]] std::optional<CodedFormat> coded_format(const MatrixView& view);

// Codes of some rows, one byte each: 8 bits signed, 4 bits unsigned. With a column order the codes
// stand in it: the code at k belongs to column column_order[k].
struct CodedRows {
  std::vector<std::byte> codes;    // [rows, cols]
  std::vector<std::byte> scales;   // [rows, blocks] of the format's dtype
  std::vector<std::byte> offsets;  // [rows, blocks] int8; empty when centred
  // Two-level: f16 [rows, cols / 256].
  std::vector<std::byte> super_scales;
  std::vector<std::byte> super_offsets;  // empty when centred
};
void read_coded_rows(const MatrixView& view, std::int64_t row_begin, std::int64_t num_rows,
                     CodedRows& out);

// A block type of MXFP4 whose halves lie in one byte (GGUF) as pairs of neighbours: per row cols /
// 2 bytes, low nibble = even column, and cols / 32 scales.
void read_mxfp4_rows(const MatrixView& view, std::int64_t row_begin, std::int64_t num_rows,
                     std::vector<std::byte>& pairs, std::vector<std::byte>& scales);

// Row `row` as numbers, for read_matrix_row(). Allocates nothing.
void read_coded_row(const MatrixView& view, std::int64_t row, float* out);

// How a matrix is stored, in words for reports: "BF16", "GPTQ int4, groups of 32", "Q4_K".
[[nodiscard]] std::string storage_name(const MatrixView& view);

// Rows of this encoding lie one after another, row_stride bytes each.
[[nodiscard]] bool has_byte_rows(MatrixEncoding encoding);
// Bytes of one row of a GGUF encoding.
[[nodiscard]] std::int64_t gguf_row_bytes(MatrixEncoding encoding, std::int64_t cols);

}  // namespace moe::model
