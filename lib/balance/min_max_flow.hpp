#pragma once

// The best possible split of experts' loads over the GPUs that hold them, exactly. Internal to
// lib/balance.

#include <cstdint>
#include <span>

namespace moe::balance {

// min over splits of max over GPUs of load / speed. Expert e may go to the GPUs
// gpus[first[e] .. first[e + 1]). loads >= 0, speeds > 0. Every expert with load has a GPU.
[[nodiscard]] double min_max_load(std::span<const double> loads,
                                  std::span<const std::int32_t> first,
                                  std::span<const std::int32_t> gpus,
                                  std::span<const double> speeds);

}  // namespace moe::balance
