#pragma once

// The width of a level's vector type S: as many floats as a panel has rows.

#include <cstdint>

#include "kernels/api.hpp"

namespace moe::kernels::simd {

inline constexpr std::int64_t kLanes = kPanelRows;

}  // namespace moe::kernels::simd
