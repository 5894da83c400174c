#include "kernels/cpu/amx/products.hpp"
#include "tests/kernels/emulated.hpp"
#include "tests/kernels/emulated_int8.hpp"
#include "tests/kernels/emulated_simd.hpp"
#include "tests/kernels/emulated_tiles.hpp"

namespace moe::kernels {
namespace {

struct EmulatedAmxVectors : Emulated {
  // High halves, even below odd.
  [[gnu::noinline]] static void store_pairs(std::byte* at, const V& even, const V& odd) noexcept {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint32_t pair = (std::bit_cast<std::uint32_t>(even.lanes[i]) >> 16U) |
                                 (std::bit_cast<std::uint32_t>(odd.lanes[i]) & 0xffff0000U);
      std::memcpy(at + 4 * i, &pair, sizeof(pair));
    }
  }
  template <int shift, int pair>
  [[gnu::noinline]] static void store_u4_pairs(std::byte* at, const std::byte* codes) noexcept {
    const V by = broadcast(static_cast<float>(shift));
    store_pairs(at, add(load_u4_col<2 * pair>(codes), by),
                add(load_u4_col<2 * pair + 1>(codes), by));
  }
};

void amx_gemm(const GemmArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    amx::gemm_bf16<amx::EmulatedTiles, EmulatedAmxVectors>(args);
  } else {
    emulated_avx512_table().gemm(args);
  }
}

void amx_gemm_gate_up(const GateUpArgs& args) noexcept {
  if (args.activation_format == ActivationFormat::kBf16) {
    amx::gemm_gate_up_bf16<amx::EmulatedTiles, EmulatedAmxVectors>(args);
  } else {
    emulated_avx512_table().gemm_gate_up(args);
  }
}

KernelTable amx_table() {
  KernelTable table = emulated_avx512_table();
  table.isa = Isa::kAmx;
  table.gemm = amx_gemm;
  table.gemm_gate_up = amx_gemm_gate_up;
  table.has_coded_bf16 = true;
  table.gemm_int8 = amx::gemm_int8<amx::EmulatedTiles, EmulatedIntegers>;
  table.gemm_gate_up_int8 = amx::gemm_gate_up_int8<amx::EmulatedTiles, EmulatedIntegers>;
  table.rounded_row_block = 256;
  return table;
}

}  // namespace

const KernelTable& emulated_amx_table() {
  static const KernelTable table = amx_table();
  return table;
}

}  // namespace moe::kernels
