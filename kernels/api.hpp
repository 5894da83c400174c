#pragma once

// The arithmetic of the engine: argument structs and the table of functions of one instruction-set
// level. Kernels trust their arguments, never allocate, never throw; the caller checks shapes.
// Every function of every level agrees with the scalar level within the tolerance stated in
// tests/kernels/tolerance.hpp.
//
// Packed weights. A matrix W [rows, cols] (rows are outputs) is stored as ceil(rows / 16) panels of
// 16 rows; missing rows are zero. Inside a panel columns run outermost:
//   f32, f16   [cols][16]
//   bf16       [ceil(cols / 2)][16][2]: two neighbouring columns of a row side by side, as the bf16
//              dot product and the AMX tiles want them; an odd last column is followed by zero
//   fp8        per block of block_cols columns: 16 f32 scales, then [block][16] bytes (e4m3fn); a
//              NaN code is packed as zero and makes the scale of its row and block NaN: same
//              products
//   mxfp4      per 32 columns: 16 bytes of e8m0 scales, then [16 pairs][16] bytes, low nibble =
//              even column; a short last group is filled with zeros
//   int8, int4 per block of block_cols columns: 16 scales (f32, f16, bf16), then nothing or 16 int8
//              zero points, then the codes in fours of columns as the integer dot products want
//              them: int8 [ceil(block / 4)][16][4] signed; int4
//              [ceil(block / 8)][16][4] bytes, unsigned, columns 0 to 3 of eight in the low
//              nibbles, 4 to 7 in the high ones; columns past the end have code zero. A weight is
//              scale * code (int4: scale * (code - 8)) or scale * (code - zero point).
//              Two-level scales: 16 f16 scales, and with offsets 16 more for those, stand before
//              the blocks of each 256 columns; a block then begins with 16 int8 scales, and 16 int8
//              offsets. A scale is the product of the two, an offset the negated product, both
//              exact in f32; a weight with offsets is scale * code + offset
// A panel is contiguous, so a matrix-vector product streams it once from start to end.
//
// int8 activations (gemm_int8, gemm_gate_up_int8; int8 and int4 weights). A row of x holds codes in
// -127 .. 127, cut like the columns of the weights: block b begins at element
// b * int8_block_stride(block) and is filled with zeros up to a multiple of 4. An activation is its
// code times the scale of its row and block. Per output and row
//   sum = sum of (weight code - its zero) * activation code over the block, an exact integer
//   total = fma(weight scale * activation scale, float(sum), total)
//   and, where the weights have offsets,
//   total = fma(offset, activation scale * float(sum of the activation codes), total)
// block by block from zero. The integers leave no order to choose: every level gives the bits of
// the scalar one (the activation function of gate and up aside). Looser than the other modes: the
// largest activation of a row and block decides the step of all.
//
// Order of summation of the others. Each output element is one chain of fused multiply-adds over
// ascending columns (bf16 dot product: over ascending pairs; formats with scales: a chain per scale
// block, then one multiply-add with the scale and, where codes are offset, one with the sum of the
// block's activations). The AMX level sums the products with bf16 activations in another order: 32
// columns at a time, begun at each scale block, the even and the odd ones a chain each that begins
// at zero; the two are added, then added to the sum (denormals are zero). The order does not depend
// on the number of rows in the batch, on the tile shape or on the thread, so a level gives the same
// bits for any batch.

#include <cstddef>
#include <cstdint>

namespace moe::kernels {

enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr int kNumIsas = 5;

enum class WeightFormat : std::uint8_t { kF32, kF16, kBf16, kFp8, kMxfp4, kInt8, kInt4 };

// How int8 and int4 blocks keep their scales, and what is added to the scaled code.
enum class ScaleFormat : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kTwoLevel,  // int8, times an f16 of 256 columns
};
enum class OffsetKind : std::uint8_t {
  kCentred,     // nothing; int4: code 8 is zero
  kZeroPoints,  // int8 codes of zero
  kTwoLevel,    // negated products, as the scales are; with such scales only
};
struct BlockFormat {
  ScaleFormat scale = ScaleFormat::kF32;
  OffsetKind offset = OffsetKind::kCentred;

  [[nodiscard]] bool operator==(const BlockFormat&) const = default;
};

enum class ActivationFormat : std::uint8_t {
  kF32,
  kBf16,  // activations are rounded to bf16 before the product; sums stay in f32. With bf16
          // weights; with fp8, mxfp4, int8 and int4 where KernelTable::has_coded_bf16 says so.
  kInt8,  // codes with a scale per row and block, for gemm_int8 and gemm_gate_up_int8; see
          // takes_int8
};

inline constexpr std::int64_t kPanelRows = 16;
// Keys of a panel of keys, see AttentionArgs.
inline constexpr std::int64_t kKeyPanelKeys = 16;
inline constexpr std::int64_t kMxfp4Group = 32;
// Columns that share the upper level of two-level scales: whole blocks, and the matrix has whole
// ones of these.
inline constexpr std::int64_t kSuperBlockCols = 256;
// Widest block of a matrix with a column order.
inline constexpr std::int64_t kMaxOrderedBlockCols = 256;
// Widest block whose integer sum cannot leave 32 bits: weight codes less their zero reach 256 in
// magnitude, activations 127.
inline constexpr std::int64_t kMaxInt8BlockCols = 65536;
static_assert(kMaxInt8BlockCols * 256 * 127 < (std::int64_t{1} << 31));

// A checkpoint matrix before packing: see moe::model::MatrixView for the addressing, which this
// repeats in kernel terms.
struct SourceMatrix {
  WeightFormat format = WeightFormat::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  std::int64_t row_stride = 0;  // elements; mxfp4: bytes
  std::int64_t col_stride = 1;  // elements; mxfp4: unused
  const std::byte* scales =
      nullptr;  // fp8: f32 (unaligned) [ceil(rows/block_rows), scale_row_stride]; mxfp4: e8m0 bytes
  std::int64_t scale_row_stride = 0;
  std::int64_t block_rows = 0;  // fp8
  std::int64_t block_cols = 0;  // fp8, int8, int4
  // int8 and int4: `data` holds one byte a code, `scales` elements of block.scale, `offsets` what
  // block.offset names; both [rows, scale_row_stride].
  BlockFormat block{};
  const std::byte* offsets = nullptr;
  // Two-level: f16 [rows, cols / 256].
  const std::byte* super_scales = nullptr;
  const std::byte* super_offsets = nullptr;
};

// A view of packed panels. Panel p starts at data + p * panel_stride_bytes.
struct PackedMatrix {
  const std::byte* data = nullptr;
  WeightFormat format = WeightFormat::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t block_cols = 0;  // fp8, int8, int4
  std::int64_t panel_stride_bytes = 0;
  BlockFormat block{};  // int8, int4
  // int8, int4: column c multiplies element column_order[c] of the activations; null: element c.
  const std::int32_t* column_order = nullptr;
};

// Bytes of one packed panel of `cols` columns (a multiple of 64).
[[nodiscard]] std::int64_t panel_bytes(WeightFormat format, std::int64_t cols,
                                       std::int64_t block_cols, BlockFormat block = {}) noexcept;

// Packs panel `panel_idx` of the source into `out` (panel_bytes long).
void pack_panel(const SourceMatrix& source, std::int64_t panel_idx, std::byte* out) noexcept;

// y[i][r] = sum_c W[r][c] * x[i][c] + bias[r] for i < num_rows and the outputs of panels
// [panel_begin, panel_end).
struct GemmArgs {
  PackedMatrix weight;
  std::int64_t panel_begin = 0;
  std::int64_t panel_end = 0;
  ActivationFormat activation_format = ActivationFormat::kF32;
  const void* x = nullptr;    // f32 or bf16 rows of weight.cols elements, 64-byte aligned base
  std::int64_t x_stride = 0;  // elements
  const std::int32_t* x_rows =
      nullptr;  // row i of the product reads row x_rows[i] of x; null: row i
  // kInt8: scales and sums of codes of block b of row i of x at i * x_block_stride + b.
  const float* x_scales = nullptr;
  const std::int32_t* x_sums = nullptr;
  std::int64_t x_block_stride = 0;
  std::int64_t num_rows = 0;
  const float* bias = nullptr;  // [rows] or null
  float* y = nullptr;  // row i at y + i * y_stride; outputs beyond weight.rows are not written
  std::int64_t y_stride = 0;
};

enum class GluKind : std::uint8_t { kSilu, kGptOss };

// h[i][r] = glu(gate row r . x[i] + gate_bias[r], up row r . x[i] + up_bias[r]). The packed matrix
// interleaves panels: panel 2p holds 16 rows of gate, panel 2p + 1 the same rows of up; weight.rows
// = 2 * intermediate rounded up to panels.
struct GateUpArgs {
  PackedMatrix weight;
  std::int64_t pair_begin = 0;  // pair p covers outputs [16 p, 16 p + 16)
  std::int64_t pair_end = 0;
  ActivationFormat activation_format = ActivationFormat::kF32;
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int32_t* x_rows = nullptr;
  const float* x_scales = nullptr;  // kInt8, as in GemmArgs
  const std::int32_t* x_sums = nullptr;
  std::int64_t x_block_stride = 0;
  std::int64_t num_rows = 0;
  GluKind glu = GluKind::kSilu;
  float limit = 0.0F;  // kGptOss
  float alpha = 0.0F;  // kGptOss
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  void* h = nullptr;  // bf16 where activation_format is, else f32
  std::int64_t h_stride = 0;
  std::int64_t intermediate = 0;  // outputs r >= intermediate are not written
};

// Attention of `num_queries` consecutive queries of one sequence and one key/value head, for the
// `num_heads` query heads that share it. out[q][h][0..v_dim) = sum_j softmax_j(scale * q . k_j,
// plus the sink logit) v_j over the visible keys: query q (position first_position + q) sees keys
// max(0, position - window + 1) .. position (window 0: from 0).
struct AttentionArgs {
  const float* q = nullptr;  // [num_queries][num_heads][k_dim] with the two strides below, elements
  std::int64_t q_stride = 0;       // between queries
  std::int64_t q_head_stride = 0;  // between heads
  std::int64_t num_queries = 0;
  std::int64_t num_heads = 0;
  std::int64_t first_position = 0;
  std::int64_t window = 0;
  // Key j at k + j * k_stride; or, where k_panel_stride > 0, in panels of 16 keys: its dim d at
  // k[j / 16 * k_panel_stride + 16 * d + j % 16]. Of a panel with a key that is seen everything may
  // be read; what its other keys are changes nothing.
  const float* k = nullptr;
  std::int64_t k_stride = 0;
  std::int64_t k_panel_stride = 0;
  std::int64_t k_dim = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  std::int64_t v_dim = 0;
  float scale = 1.0F;
  const float* sinks = nullptr;  // [num_heads] or null
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t out_head_stride = 0;
  float* scratch =
      nullptr;  // attention_scratch_floats(...) floats, 64-byte aligned, one per thread
};

// Scratch for an AttentionArgs whose last query has position max_position.
[[nodiscard]] std::int64_t attention_scratch_floats(std::int64_t num_heads,
                                                    std::int64_t max_position,
                                                    std::int64_t v_dim) noexcept;

// A row of activations as codes. Of a block: scale = largest magnitude / 127, code = x * (127 /
// largest magnitude) to the nearest integer, ties to even. Blocks without a magnitude of 2^-100
// count as zeros; one with a value that is not finite has the scale NaN, which its products then
// are. Every level gives the same bits.
struct QuantizeArgs {
  const float* x = nullptr;
  std::int64_t cols = 0;
  std::int64_t block_cols = 0;   // the last block may be shorter
  std::int8_t* codes = nullptr;  // blocks int8_block_stride(block_cols) apart
  float* scales = nullptr;       // [blocks]
  std::int32_t* sums = nullptr;  // [blocks], of the codes
};

struct KernelTable {
  Isa isa = Isa::kScalar;
  void (*gemm)(const GemmArgs&) noexcept = nullptr;
  void (*gemm_gate_up)(const GateUpArgs&) noexcept = nullptr;
  void (*attention)(const AttentionArgs&) noexcept = nullptr;
  // y = x / rms(x) * weight over n elements (mean of squares plus eps); x and y may be the same.
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps,
                   float* y) noexcept = nullptr;
  // out[i] += scale * x[i]
  void (*axpy)(float scale, const float* x, std::int64_t n, float* out) noexcept = nullptr;
  // Round to nearest even.
  void (*f32_to_bf16)(const float* x, std::int64_t n, std::uint16_t* out) noexcept = nullptr;
  // sum of x[i] * y[i]
  float (*dot)(const float* x, const float* y, std::int64_t n) noexcept = nullptr;
  // gemm and gemm_gate_up for ActivationFormat::kInt8.
  void (*gemm_int8)(const GemmArgs&) noexcept = nullptr;
  void (*gemm_gate_up_int8)(const GateUpArgs&) noexcept = nullptr;
  void (*quantize_row)(const QuantizeArgs&) noexcept = nullptr;
  // gemm and gemm_gate_up take bf16 activations with fp8, mxfp4, int8 and int4 weights too.
  bool has_coded_bf16 = false;
  // Rows of one call beyond which a product with bf16 or int8 activations gets no cheaper per row.
  std::int64_t rounded_row_block = 96;
};

// gemm and gemm_gate_up of the table take bf16 activations with weights of this format.
[[nodiscard]] bool takes_bf16(const KernelTable& table, WeightFormat format) noexcept;

// gemm_int8 and gemm_gate_up_int8 take this matrix: int8 or int4, columns in order, blocks of at
// most kMaxInt8BlockCols.
[[nodiscard]] bool takes_int8(const PackedMatrix& weight) noexcept;
// Columns of a block of activations for these weights: one block when the weights have one.
[[nodiscard]] std::int64_t int8_block_cols(const PackedMatrix& weight) noexcept;
// Elements from one block of codes to the next, and of a row of codes.
[[nodiscard]] std::int64_t int8_block_stride(std::int64_t block_cols) noexcept;
[[nodiscard]] std::int64_t int8_row_elements(std::int64_t cols, std::int64_t block_cols) noexcept;

// The table of one level: what the level lacks comes from the next lower one. Null when the machine
// cannot run it or the build does not have it.
[[nodiscard]] const KernelTable* kernel_table(Isa isa) noexcept;

// The processor has the level and the operating system keeps its registers. For AMX the first call
// asks the operating system for the permission, which holds for the whole process.
[[nodiscard]] bool isa_supported(Isa isa) noexcept;
[[nodiscard]] Isa best_supported_isa() noexcept;
// The integer dot product of AVX-512 (VNNI), which processors with kAvx512 alone may have too. It
// changes no bit.
[[nodiscard]] bool vnni_supported() noexcept;
// Why a level that the processor has cannot be used, as the end of a sentence; null when it can be,
// or when the processor does not have it.
[[nodiscard]] const char* isa_refusal(Isa isa) noexcept;

// Runs every function of the level against the scalar one on small fixed inputs (well under 10 ms).
// False: this machine computes wrong values at this level, which must then not be used. *failed
// names the function.
[[nodiscard]] bool self_test(Isa isa, const char** failed) noexcept;

[[nodiscard]] const char* isa_name(Isa isa) noexcept;  // "avx512_bf16"
[[nodiscard]] bool parse_isa(const char* name, Isa* isa) noexcept;

}  // namespace moe::kernels
