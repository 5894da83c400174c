#pragma once

// Rounds weights to integer codes with a scale per group of columns or per row, symmetric around
// zero, for MatrixEncoding::kIntRows.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/model/bound_model.hpp"

namespace moe::model {

inline constexpr std::int32_t kQuantizeGroup = 32;

struct Rounding {
  std::int32_t bits = 8;  // 4 or 8
  // One f32 scale for a row, of 8 bits only, instead of one per kQuantizeGroup columns in bf16,
  // whose range is that of any weight.
  bool is_per_row = false;
};

// Bytes of the codes of one row, and of its scales.
[[nodiscard]] std::int64_t quantized_code_bytes(Rounding rounding, std::int64_t cols);
[[nodiscard]] std::int64_t quantized_scale_bytes(Rounding rounding, std::int64_t cols);

struct QuantizeError {
  double squared_error = 0.0;
  double squared_weight = 0.0;
};

// Codes of one row: 8 bits signed bytes, 4 bits two to a byte and stored + 8. The scale of a group
// is the one of a few candidates that leaves the least squared error; that of a row makes its
// largest magnitude 127.
QuantizeError quantize_row(std::span<const float> row, Rounding rounding, std::byte* codes,
                           std::byte* scales);

// The view of a matrix whose rows were quantised one after another.
[[nodiscard]] MatrixView quantized_view(const MatrixView& source, Rounding rounding,
                                        const std::byte* codes, const std::byte* scales);

}  // namespace moe::model
