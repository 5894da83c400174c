#pragma once

// The run cut into slices of time, for charts, and the busiest second.

#include <cstdint>

#include "lib/client/load_figures.hpp"

namespace moe::client {

// Fills bins and peak_output_tokens_per_s; the rates must be there.
void add_bins(const LoadResult& result, std::int64_t max_bins, LoadFigures& figures);

}  // namespace moe::client
