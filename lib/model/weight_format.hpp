#pragma once

// How a weight is stored: bits of a code, the groups that share a scale, what a scale and a zero
// point take. One description for dense types, FP8 blocks, INT4/INT8 groups, MXFP4, NVFP4 and GGUF
// block types, so that bytes follow from a shape. Touches no file.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::model {

inline constexpr std::int64_t kMxfp4Block = 32;  // codes that share a scale

struct WeightFormat {
  std::string name = "bf16";  // "fp8-block128", "int4-g128", "mxfp4", "q4_k", ...
  double bits = 16.0;         // of one code; GGUF types: the whole block spread over its weights
  // Weights that share a scale, along the rows (outputs) and the columns (inputs) of a matrix. A
  // border block counts whole. 0: the whole extent (per tensor, per channel).
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
  double scale_bits = 0.0;   // per block
  double zero_bits = 0.0;    // per block
  double tensor_bits = 0.0;  // per matrix (the second-level scale of NVFP4)
  // A 32-bit index per input column (GPTQ with activation order).
  bool has_group_index = false;
  // Weights per storage block of a GGUF type; rows are padded to it. 1: none.
  std::int64_t row_multiple = 1;
  bool is_quantized = false;

  [[nodiscard]] bool operator==(const WeightFormat&) const = default;
};

// Bytes of `count` matrices [rows, cols]; a vector is one row. Rounded up to whole bytes per
// matrix. Saturates at the largest int64.
[[nodiscard]] std::int64_t matrix_bytes(const WeightFormat& format, std::int64_t rows,
                                        std::int64_t cols, std::int64_t count = 1);

// bf16, fp16, fp32, fp8 (per tensor), fp8-channel, fp8-block128, int8 (per channel), int8-g128,
// int4 (per channel), int4-g32, int4-g128 (with zero points), int4-g32-sym, mxfp4, nvfp4, and the
// GGUF types q4_0 ... tq2_0. Any -gN is understood. Throws Error(kInput) listing the names.
[[nodiscard]] WeightFormat parse_weight_format(std::string_view name);
[[nodiscard]] std::vector<std::string> weight_format_names();
// The name as parse_weight_format() takes it ("Q4_K" -> "q4_k"); nullopt when it is not known.
[[nodiscard]] std::optional<std::string> find_weight_format(std::string_view name);

// Nominal bits per weight of a large matrix, scales and zero points included.
[[nodiscard]] double bits_per_weight(const WeightFormat& format);

}  // namespace moe::model
