#pragma once

// The parsers under plan_text.hpp: hostile text to rows of expert ids, nothing else. Internal to
// lib/balance.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe::balance {

inline constexpr std::int32_t kMaxPlanLayers = 4096;
inline constexpr std::int32_t kMaxPlanExperts = 1 << 16;
inline constexpr std::size_t kMaxPlanBytes = std::size_t{256} << 20;

struct PlanRows {
  std::vector<std::int32_t> layers;             // ascending
  std::vector<std::vector<std::int32_t>> rows;  // [layers][slots] expert ids, 0..kMaxPlanExperts-1
  std::vector<std::int32_t> gpu_slots;          // slots of each GPU; empty: not told
};

// Throws Error(kInput).
[[nodiscard]] PlanRows read_plan_rows(std::string_view text, const std::string& where);

}  // namespace moe::balance
