#include "lib/base/open_files.hpp"

#include <algorithm>
#include <limits>

#include <sys/resource.h>

namespace moe {

std::int64_t allow_open_files(std::int64_t wanted) noexcept {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const auto goal = static_cast<rlim_t>(std::max<std::int64_t>(wanted, 0));
  if (limit.rlim_cur < goal) {
    const rlimit raised = {std::min(goal, limit.rlim_max), limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit.rlim_cur = raised.rlim_cur;
  }
  constexpr rlim_t kMax = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(limit.rlim_cur, kMax));
}

}  // namespace moe
