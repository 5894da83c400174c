#pragma once

// A checkpoint seen as the model it holds: every weight as a logical matrix [out, in] or a vector,
// whatever the files call it and however they lay it out (per expert, fused, transposed,
// interleaved, quantised). Engines see only this; tensor names and layouts end here. Views point
// into mapped files that the BoundModel keeps alive.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/model/config.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {

enum class MatrixEncoding : std::uint8_t {
  kPlain,     // dtype F32, F16 or BF16
  kFp8Block,  // dtype F8_E4M3, value * scale[row / block_rows][col / block_cols]
  kMxfp4,  // two values a byte, low nibble = even column; value * 2^(scale - 127), a scale per 32
           // columns
  // Integer codes, see coded_matrix.hpp. Rows of bytes: the codes of a row in row_stride bytes.
  // code_bits 8: signed bytes, or with dtype I32 (words of compressed-tensors) stored + 128;
  // 4: low nibble = even column, stored + 8
  kIntRows,
  kGptq,  // int32 words [cols * bits / 32, rows], the codes of 32 / bits columns from low to high
  kAwq,   // int32 words [cols, rows / 8], the codes of 8 rows in the order 0 2 4 6 1 3 5 7
  kGgufQ8_0,  // rows of blocks that hold their scales
  kGgufQ4_0,
  kGgufQ4K,
  kGgufQ6K,
  kGgufMxfp4,
};

// w[r][c], r < rows (outputs), c < cols (inputs). kPlain: element at data[r * row_stride + c *
// col_stride], strides in elements. kFp8Block: the same with one-byte elements, one scale for all
// with scale_row_stride 0 (and block_rows 1). kMxfp4: cols % 32
// == 0, packed byte of (r, c) at data[r * row_stride + c / 2] (row_stride in bytes, col_stride
// unused), its scale at scales[r * scale_row_stride + c / 32].
struct MatrixView {
  std::string name;  // as in the file, for messages
  MatrixEncoding encoding = MatrixEncoding::kPlain;
  Dtype dtype = Dtype::kBf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
  const float* fp8_scales =
      nullptr;  // [ceil(rows/block_rows), scale_row_stride], may be unaligned: read with memcpy
  const std::byte* mxfp4_scales = nullptr;
  Dtype scale_dtype = Dtype::kF32;  // of fp8_scales as the file has them
  std::int64_t scale_row_stride = 0;
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  // kIntRows, kGptq, kAwq: the scale of row r and block b, of scale_dtype, is element
  // r * scale_row_stride + b * scale_col_stride of `scales`.
  std::int32_t code_bits = 0;
  const std::byte* scales = nullptr;
  std::int64_t scale_col_stride = 1;
  // Zero points; null: the middle of the codes. kGptq, kAwq: words of row b packed as the codes of
  // a row of words are, zero_stride words each. kIntRows: signed bytes [rows, blocks], or with
  // dtype I32 words [ceil(rows * code_bits / 32), blocks].
  const std::byte* zeros = nullptr;
  std::int64_t zero_stride = 0;
  std::int32_t zero_bias = 0;  // added to what is stored (1: GPTQ before version 2)
  // Block b holds columns column_order[b * block_cols] and on (GPTQ with activation order); null:
  // in their natural order. [cols]
  const std::int32_t* column_order = nullptr;

  [[nodiscard]] bool empty() const { return data == nullptr; }
};

// v[i], i < size: element at data[i * stride] (elements).
struct VectorView {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  std::int64_t size = 0;
  const std::byte* data = nullptr;
  std::int64_t stride = 1;

  [[nodiscard]] bool empty() const { return data == nullptr; }
};

struct NormView {
  VectorView weight;
  VectorView bias;  // empty for RMS
};

// One gated feed-forward block: an expert, a shared expert or a dense MLP.
struct FfnView {
  MatrixView gate;                           // [intermediate, hidden]
  MatrixView up;                             // [intermediate, hidden]
  MatrixView down;                           // [hidden, intermediate]
  VectorView gate_bias, up_bias, down_bias;  // empty unless has_expert_bias
};

struct AttentionView {
  // GQA
  MatrixView q, k, v, o;
  VectorView q_bias, k_bias, v_bias, o_bias;
  VectorView q_norm, k_norm;
  VectorView sinks;  // [heads]
  // MLA: q is used when q_lora_rank is 0
  MatrixView q_a, q_b, kv_a,
      kv_b;  // kv_a: [kv_lora + rope, hidden]; kv_b: [heads * (nope + v), kv_lora]
  // Instead of kv_b, its parts as newer GGUF files have them: k_b holds, below one another, the
  // transposed key rows of each head, [heads * kv_lora, nope]; v_b is [heads * v, kv_lora].
  MatrixView k_b, v_b;
  VectorView q_a_norm, kv_a_norm;
};

struct LayerView {
  NormView input_norm;
  NormView post_attention_norm;
  AttentionView attention;
  FfnView dense;                 // a dense layer
  MatrixView router;             // [experts, hidden], never quantised
  VectorView router_bias;        // has_logit_bias
  VectorView correction_bias;    // has_correction_bias
  std::vector<FfnView> experts;  // num_experts
  FfnView shared;                // shared_intermediate_size > 0
  VectorView shared_gate;        // [hidden]
};

class TensorFiles;  // the mapped files; lib/model/tensor_files.hpp
class GgufFile;     // lib/model/gguf_file.hpp

struct BoundModel {
  ModelConfig config;
  MatrixView embedding;  // [vocab, hidden]; may have more rows than vocab_size
  NormView final_norm;
  MatrixView lm_head;  // the embedding itself when tied
  VectorView lm_head_bias;
  std::vector<LayerView> layers;
  std::vector<std::string> ignored_tensors;  // "name (rule)"
  std::vector<std::string> warnings;
  std::int64_t file_bytes = 0;  // of all weight files
  // One of the two keeps the mappings alive.
  std::shared_ptr<const TensorFiles> files;
  std::shared_ptr<const GgufFile> gguf;
  std::vector<std::shared_ptr<const std::vector<float>>> owned;  // scales converted to f32
  std::vector<std::shared_ptr<const std::vector<std::int32_t>>> owned_orders;

  bool has_copies = false;  // some views lie in memory of the caller

  // All views lie in mapped files, whose pages may be given back and are read again when needed.
  [[nodiscard]] bool is_mapped() const {
    return !has_copies && (files != nullptr || gguf != nullptr);
  }
};

struct BindOptions {
  // Looks for NaN and infinity in the small tensors, which reads their pages; off, only headers are
  // read and a checkpoint of any size binds in milliseconds.
  bool scan_values = true;
};

// `path` is a checkpoint directory, a GGUF file (of several parts, the first), or a directory that
// holds one GGUF model and no safetensors. Opens it, reads its config and headers, checks that
// every tensor of the model is there with its shape and an allowed dtype and that every tensor of
// the files is used or ignored by a rule, scans the small tensors (router, biases, scales) for NaN
// and infinity. Reads no big weight data. Throws Error(kInput) with the file, tensor or field at
// fault.
[[nodiscard]] BoundModel bind_checkpoint(const std::filesystem::path& path);
[[nodiscard]] BoundModel bind_checkpoint(const std::filesystem::path& path,
                                         const BindOptions& options);

// Plain reads, to f32.
[[nodiscard]] std::vector<float> read_vector(const VectorView& view);
// Row `row` of the matrix, dequantised, into out[cols].
void read_matrix_row(const MatrixView& view, std::int64_t row, float* out);

}  // namespace moe::model
