#pragma once

// What the multiply-add instructions of a level reach with all operands in registers: the ceiling
// that no kernel passes, whatever its weights are stored as. `vdpbf16ps` is the reason to measure
// it: on Zen 4 it does twice the work of an f32 multiply-add, on Emerald Rapids half of it.

#include <cstdint>
#include <span>

#include "kernels/api.hpp"

namespace moe::engine {

struct MultiplyInstruction {
  const char* name = "";                     // "vfmadd231ps zmm"
  const char* operands = "";                 // "f32", "bf16", "int8": what is multiplied
  kernels::Isa isa = kernels::Isa::kScalar;  // the level that has it
  double ops_per_call = 0.0;                 // multiply and add count as two
  void (*call)() noexcept = nullptr;         // a few microseconds of independent products
};

// All that this build knows, lowest level first. Run only what isa_supported() allows.
[[nodiscard]] std::span<const MultiplyInstruction> multiply_instructions();

// The one that a level's kernels use for these activations: the best of the level or of those below
// it. Null: the scalar level, and processors without a loop here.
[[nodiscard]] const MultiplyInstruction* multiply_instruction(
    kernels::Isa isa, kernels::ActivationFormat activations);

}  // namespace moe::engine
