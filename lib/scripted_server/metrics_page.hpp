#pragma once

// The /metrics page of each dialect, from the server's own counts.

#include <array>
#include <cstdint>
#include <string>

#include "lib/scripted_server/script.hpp"

namespace moe::scripted_server {

// Upper ends of the buckets, seconds; the last bucket has none.
inline constexpr std::array<double, 14> kBucketEnds_s = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 10.0};

struct Histogram {
  std::array<std::int64_t, kBucketEnds_s.size() + 1> counts = {};
  std::int64_t count = 0;
  double sum_s = 0.0;

  void add(double value_s);
};

struct Counters {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t held_tokens = 0;  // prompts and limits of running requests: what the KV cache holds
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::int64_t finished_stop = 0;
  std::int64_t finished_length = 0;
  std::int64_t finished_error = 0;
  std::int64_t finished_abort = 0;
  Histogram ttft;
  Histogram end_to_end;
  Histogram queue;
};

[[nodiscard]] std::string metrics_page(const Script& script, const Counters& counters);

}  // namespace moe::scripted_server
