#pragma once

// Jobs of threads for tests.

#include <memory>

#include "lib/comm/backend.hpp"

namespace moe::comm {

inline std::unique_ptr<Job> threads_job(int num_ranks, double time_limit_s = 60.0) {
  BackendOptions options;
  options.num_ranks = num_ranks;
  options.time_limit_s = time_limit_s;
  return open_threads_job(options);
}

}  // namespace moe::comm
