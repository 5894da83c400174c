#pragma once

// An engine routes a batch of dummy tokens before it serves; some traces hold it.

#include <cstdint>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

// So many tokens in a row with equal experts in all layers are no text.
inline constexpr std::int64_t kMinDummyRun = 16;

// Leaves out the dummy tokens at the start of a token input and notes how many as
// "profiling.skipped". Counts alone cannot be mended: nothing happens.
void skip_profiling(RoutingInput& input);

}  // namespace moe::routing
