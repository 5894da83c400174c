#include "kernels/cpu/levels.hpp"

#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/scalar/scalar.hpp"
#if defined(__x86_64__)
#include "kernels/cpu/amx/level.hpp"
#include "kernels/cpu/avx2/level.hpp"
#include "kernels/cpu/avx512/level.hpp"
#include "kernels/cpu/avx512_bf16/level.hpp"
#include "kernels/cpu/avx512_vnni/level.hpp"
#endif

namespace moe::kernels {
namespace {

constexpr KernelTable kScalarTable = {
    .isa = Isa::kScalar,
    .gemm = scalar::gemm,
    .gemm_gate_up = scalar::gemm_gate_up,
    .attention = scalar::attention,
    .rms_norm = scalar::rms_norm,
    .axpy = scalar::axpy,
    .f32_to_bf16 = scalar::f32_to_bf16,
    .dot = scalar::dot,
    .gemm_int8 = scalar::gemm_int8,
    .gemm_gate_up_int8 = scalar::gemm_gate_up_int8,
    .quantize_row = scalar::quantize_row,
    .has_coded_bf16 = true,
};

#if defined(__x86_64__)

constexpr KernelTable kAvx2Table = {
    .isa = Isa::kAvx2,
    .gemm = avx2::gemm,
    .gemm_gate_up = avx2::gemm_gate_up,
    .attention = avx2::attention,
    .rms_norm = avx2::rms_norm,
    .axpy = avx2::axpy,
    .f32_to_bf16 = avx2::f32_to_bf16,
    .dot = avx2::dot,
    .gemm_int8 = avx2::gemm_int8,
    .gemm_gate_up_int8 = avx2::gemm_gate_up_int8,
    .quantize_row = avx2::quantize_row,
};

constexpr KernelTable kAvx512Table = {
    .isa = Isa::kAvx512,
    .gemm = avx512::gemm,
    .gemm_gate_up = avx512::gemm_gate_up,
    .attention = avx512::attention,
    .rms_norm = avx512::rms_norm,
    .axpy = avx512::axpy,
    .f32_to_bf16 = avx512::f32_to_bf16,
    .dot = avx512::dot,
    .gemm_int8 = avx512::gemm_int8,
    .gemm_gate_up_int8 = avx512::gemm_gate_up_int8,
    .quantize_row = avx512::quantize_row,
};

constexpr KernelTable kAvx512VnniTable = [] {
  KernelTable table = kAvx512Table;
  table.gemm_int8 = avx512_vnni::gemm_int8;
  table.gemm_gate_up_int8 = avx512_vnni::gemm_gate_up_int8;
  return table;
}();

// What a level adds to AVX-512 with VNNI; the rest is its.
constexpr KernelTable kAvx512Bf16Table = [] {
  KernelTable table = kAvx512VnniTable;
  table.isa = Isa::kAvx512Bf16;
  table.gemm = avx512_bf16::gemm;
  table.gemm_gate_up = avx512_bf16::gemm_gate_up;
  table.has_coded_bf16 = true;
  return table;
}();

constexpr KernelTable kAmxTable = [] {
  KernelTable table = kAvx512VnniTable;
  table.isa = Isa::kAmx;
  table.gemm = amx::gemm;
  table.gemm_gate_up = amx::gemm_gate_up;
  table.gemm_int8 = amx::gemm_int8;
  table.gemm_gate_up_int8 = amx::gemm_gate_up_int8;
  table.has_coded_bf16 = true;
  table.rounded_row_block = 256;
  return table;
}();

#endif

}  // namespace

bool takes_bf16(const KernelTable& table, WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      return false;
    case WeightFormat::kBf16:
      return true;
    case WeightFormat::kFp8:
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return table.has_coded_bf16;
  }
  return false;
}

bool takes_int8(const PackedMatrix& weight) noexcept {
  return (weight.format == WeightFormat::kInt8 || weight.format == WeightFormat::kInt4) &&
         weight.column_order == nullptr && int8_block_cols(weight) <= kMaxInt8BlockCols;
}

std::int64_t int8_block_cols(const PackedMatrix& weight) noexcept {
  return activation_block_cols(weight.cols, weight.block_cols);
}

std::int64_t int8_block_stride(std::int64_t block_cols) noexcept {
  return padded_codes(block_cols);
}

std::int64_t int8_row_elements(std::int64_t cols, std::int64_t block_cols) noexcept {
  return ceil_div(cols, block_cols) * padded_codes(block_cols);
}

const KernelTable* level_table(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return &kScalarTable;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return &kAvx2Table;
    case Isa::kAvx512:
      return vnni_supported() ? &kAvx512VnniTable : &kAvx512Table;
    case Isa::kAvx512Bf16:
      return &kAvx512Bf16Table;
    case Isa::kAmx:
      return &kAmxTable;
#else
    case Isa::kAvx2:
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      break;
#endif
  }
  return nullptr;
}

}  // namespace moe::kernels
