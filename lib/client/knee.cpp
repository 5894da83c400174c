#include "lib/client/knee.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"

namespace moe::client {

Knee find_knee(const KneeOptions& options,
               const std::function<std::optional<bool>(double load)>& meets) {
  MOE_CHECK(options.start > 0.0 && options.growth > 1.0);
  Knee knee;
  double low = 0.0;
  double high = 0.0;  // 0: none failed yet
  double load = options.start;
  while (static_cast<std::int64_t>(knee.points.size()) < options.max_points) {
    if (options.is_whole) load = std::max(1.0, std::round(load));
    load = std::min(load, options.max_load);
    const std::optional<bool> outcome = meets(load);
    if (!outcome) break;
    knee.points.push_back({load, *outcome});
    (*outcome ? low : high) = load;
    if (high == 0.0) {
      if (low >= options.max_load) break;
      load *= options.growth;
      continue;
    }
    if (low > 0.0 && high / low <= 1.0 + options.resolution_ratio) break;
    if (options.is_whole && high - low <= 1.0) break;
    // Downwards by halves while nothing has met the level yet.
    load = low > 0.0 ? std::sqrt(low * high) : high / options.growth;
  }
  knee.best = low;
  knee.is_bounded = high > 0.0;
  return knee;
}

}  // namespace moe::client
