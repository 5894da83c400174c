#include "lib/engine/instruction_peak.hpp"

#include <array>
#include <cstring>

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::Isa;

#if defined(__x86_64__)

constexpr std::uint32_t kRoundsPerCall = 1000;
constexpr double kVectorsPerRound = 12.0;
constexpr double kTilesPerRound = 4.0;
constexpr std::uint32_t kTileRoundsPerCall = 100;

// Twelve sums hide the latency of every core that these instructions run on (at most 8 cycles at
// one a cycle, 4 at two). All registers are zero: no product is treated apart for it, and no sum
// becomes a denormal. The mnemonics are the assembler's own, so the file needs no target flags.
#define MOE_TWELVE_SUMS(instruction, register) \
  instruction " %%" register "12, %%" register "13, %%" register "0\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "1\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "2\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "3\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "4\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "5\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "6\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "7\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "8\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "9\n\t"         \
  instruction " %%" register "12, %%" register "13, %%" register "10\n\t"        \
  instruction " %%" register "12, %%" register "13, %%" register "11\n\t"

// A product and an addition by turns, as where no instruction does both: pairs of 16-bit integers.
#define MOE_PAIR_SUM(register, sum) \
  "vpmaddwd %%" register "12, %%" register "13, %%" register "14\n\t"                       \
  "vpaddd %%" register "14, %%" register sum ", %%" register sum "\n\t"
#define MOE_FOUR_PAIR_SUMS(register, a, b, c, d) \
  MOE_PAIR_SUM(register, a)                      \
  MOE_PAIR_SUM(register, b) MOE_PAIR_SUM(register, c) MOE_PAIR_SUM(register, d)
#define MOE_TWELVE_PAIR_SUMS(register)             \
  MOE_FOUR_PAIR_SUMS(register, "0", "1", "2", "3") \
  MOE_FOUR_PAIR_SUMS(register, "4", "5", "6", "7") \
  MOE_FOUR_PAIR_SUMS(register, "8", "9", "10", "11")

// vzeroall clears the whole of registers 0 to 15 and leaves no upper halves in use behind.
#define MOE_VECTOR_LOOP(function, body)                                                         \
  void function() noexcept {                                                                    \
    std::uint32_t rounds = kRoundsPerCall;                                                      \
    asm volatile(                                                                               \
        "vzeroall\n\t"                                                                          \
        "1:\n\t" body                                                                           \
        "dec %[rounds]\n\t"                                                                     \
        "jnz 1b\n\t"                                                                            \
        "vzeroall\n\t"                                                                          \
        : [rounds] "+r"(rounds)                                                                 \
        :                                                                                       \
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
          "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                \
  }

MOE_VECTOR_LOOP(fma_ymm, MOE_TWELVE_SUMS("vfmadd231ps", "ymm"))
MOE_VECTOR_LOOP(fma_zmm, MOE_TWELVE_SUMS("vfmadd231ps", "zmm"))
MOE_VECTOR_LOOP(bf16_zmm, MOE_TWELVE_SUMS("vdpbf16ps", "zmm"))
MOE_VECTOR_LOOP(pairs_ymm, MOE_TWELVE_PAIR_SUMS("ymm"))
MOE_VECTOR_LOOP(pairs_zmm, MOE_TWELVE_PAIR_SUMS("zmm"))
MOE_VECTOR_LOOP(int8_zmm, MOE_TWELVE_SUMS("vpdpbusd", "zmm"))

#undef MOE_VECTOR_LOOP
#undef MOE_TWELVE_PAIR_SUMS
#undef MOE_PAIR_SUM
#undef MOE_TWELVE_SUMS

// The 64 bytes of ldtilecfg (Intel SDM, "Tile configuration"): palette, start row, 14 reserved
// bytes, bytes per row of tiles 0 to 15, rows of tiles 0 to 15.
struct alignas(64) TileShapes {
  std::uint8_t palette = 0;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};
};
static_assert(sizeof(TileShapes) == 64);

TileShapes eight_full_tiles() noexcept {
  TileShapes shapes;
  shapes.palette = 1;
  for (std::size_t tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = 16;
  }
  return shapes;
}

// Two by two sums, as a kernel has them. Whoever configured the tiles before finds his shapes
// again.
#define MOE_TILE_LOOP(function, instruction)                                                \
  void function() noexcept {                                                                \
    std::uint32_t rounds = kTileRoundsPerCall;                                              \
    const TileShapes shapes = eight_full_tiles();                                           \
    TileShapes before;                                                                      \
    asm volatile(                                                                           \
        "sttilecfg %[before]\n\t"                                                           \
        "ldtilecfg %[shapes]\n\t"                                                           \
        "tilezero %%tmm0\n\t"                                                               \
        "tilezero %%tmm1\n\t"                                                               \
        "tilezero %%tmm2\n\t"                                                               \
        "tilezero %%tmm3\n\t"                                                               \
        "tilezero %%tmm4\n\t"                                                               \
        "tilezero %%tmm5\n\t"                                                               \
        "tilezero %%tmm6\n\t"                                                               \
        "tilezero %%tmm7\n\t"                                                               \
        "1:\n\t" instruction " %%tmm6, %%tmm4, %%tmm0\n\t" instruction                      \
        " %%tmm7, %%tmm4, %%tmm1\n\t" instruction " %%tmm6, %%tmm5, %%tmm2\n\t" instruction \
        " %%tmm7, %%tmm5, %%tmm3\n\t"                                                       \
        "dec %[rounds]\n\t"                                                                 \
        "jnz 1b\n\t"                                                                        \
        "ldtilecfg %[before]\n\t"                                                           \
        : [rounds] "+r"(rounds), [before] "+m"(before)                                      \
        : [shapes] "m"(shapes)                                                              \
        : "cc");                                                                            \
  }

MOE_TILE_LOOP(bf16_tiles, "tdpbf16ps")
MOE_TILE_LOOP(int8_tiles, "tdpbssd")

#undef MOE_TILE_LOOP

constexpr double vector_ops(double ops_per_instruction) {
  return ops_per_instruction * kVectorsPerRound * kRoundsPerCall;
}
// 16 x 16 sums of 64-byte rows.
constexpr double tile_ops(double products_per_row) {
  return 2.0 * 16.0 * 16.0 * products_per_row * kTilesPerRound * kTileRoundsPerCall;
}

constexpr std::array<MultiplyInstruction, 8> kInstructions = {{
    {"vfmadd231ps ymm", "f32", Isa::kAvx2, vector_ops(16.0), fma_ymm},
    {"vpmaddwd vpaddd ymm", "int8", Isa::kAvx2, vector_ops(32.0), pairs_ymm},
    {"vfmadd231ps zmm", "f32", Isa::kAvx512, vector_ops(32.0), fma_zmm},
    {"vpmaddwd vpaddd zmm", "int8", Isa::kAvx512, vector_ops(64.0), pairs_zmm},
    {"vdpbf16ps zmm", "bf16", Isa::kAvx512Bf16, vector_ops(64.0), bf16_zmm},
    {"vpdpbusd zmm", "int8", Isa::kAvx512Bf16, vector_ops(128.0), int8_zmm},
    {"tdpbf16ps", "bf16", Isa::kAmx, tile_ops(32.0), bf16_tiles},
    {"tdpbssd", "int8", Isa::kAmx, tile_ops(64.0), int8_tiles},
}};

#else

constexpr std::array<MultiplyInstruction, 0> kInstructions = {};

#endif

}  // namespace

std::span<const MultiplyInstruction> multiply_instructions() {
  return kInstructions;
}

const MultiplyInstruction* multiply_instruction(Isa isa, ActivationFormat activations) {
  // bf16 activations on a level without bf16 products are widened: f32 there, too.
  const bool has_bf16_products = isa >= Isa::kAvx512Bf16;
  const char* operands = activations == ActivationFormat::kInt8                        ? "int8"
                         : activations == ActivationFormat::kBf16 && has_bf16_products ? "bf16"
                                                                                       : "f32";
  // AVX-512 multiplies int8 with VNNI where the processor has it.
  if (activations == ActivationFormat::kInt8 && isa == Isa::kAvx512 && kernels::vnni_supported()) {
    isa = Isa::kAvx512Bf16;
  }
  const MultiplyInstruction* best = nullptr;
  for (const MultiplyInstruction& instruction : kInstructions) {
    if (instruction.isa <= isa && std::strcmp(instruction.operands, operands) == 0) {
      best = &instruction;
    }
  }
  return best;
}

}  // namespace moe::engine
