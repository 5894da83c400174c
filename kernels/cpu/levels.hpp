#pragma once

// One table per instruction-set level. The tables are plain data of the baseline build; calling a
// function of a level that the machine lacks is an illegal instruction.

#include "kernels/api.hpp"

namespace moe::kernels {

// Null when the build does not have the level.
[[nodiscard]] const KernelTable* level_table(Isa isa) noexcept;

}  // namespace moe::kernels
