#pragma once

// Linking count_allocations.cpp replaces operator new by one that counts.

#include <cstdint>

namespace moe::engine::testing {

[[nodiscard]] std::int64_t num_allocations();

}  // namespace moe::engine::testing
