#pragma once

// A loaded server: what clients see when a deployment decodes many requests at once, takes in new
// prompts between, and lets requests wait. Closed loop: a fixed number of clients, each sending its
// next request when the last one is answered (what benchmarks do). Open loop: requests arrive at a
// rate whatever the server does (what users do).

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/planner/step_time.hpp"

namespace moe::planner {

struct RequestShape {
  double input_tokens = 1024.0;
  double output_tokens = 1024.0;
  double cached_input_tokens = 0.0;  // prefix-cache hits, not computed again
  double pass_tokens = 8192.0;       // prompt tokens the engine takes into one pass
};

enum class ServingLimit : std::uint8_t {
  kNone,     // latency, not a queue, sets the rate
  kKvCache,  // more requests than the cache holds wait outside
  kPrefill,  // prompts arrive as fast as they can be taken in
  kDecode,   // decode cannot keep up with the arrivals
};
[[nodiscard]] std::string_view serving_limit_name(ServingLimit limit);

// One operating point. Per-user times are means; TPOT excludes the first token.
struct ServingPoint {
  bool is_stable = true;  // open loop: arrivals do not pile up
  double ttft_s = 0.0;
  double tpot_s = 0.0;
  double request_s = 0.0;            // ttft + (output_tokens - 1) * tpot
  double tpot_full_overlap_s = 0.0;  // band of tpot
  double tpot_no_overlap_s = 0.0;
  double ttft_low_s = 0.0;  // band: full overlap and no waiting, no overlap and all waiting
  double ttft_high_s = 0.0;
  double ttft_p50_s = 0.0;
  double ttft_p99_s = 0.0;
  double prefill_s = 0.0;       // of one request, alone
  double wait_s = 0.0;          // part of ttft: behind other prompts, outside the cache
  double decode_step_s = 0.0;   // without prefill beside it
  double batch_per_rank = 0.0;  // sequences in a decode step on one attention rank
  double concurrency = 0.0;     // requests in the system
  double admitted = 0.0;        // requests that hold cache
  double prefill_utilization = 0.0;
  double requests_per_s = 0.0;
  double output_tokens_per_s = 0.0;
  double output_tokens_per_s_per_gpu = 0.0;
  std::int32_t num_gpus = 0;
  ServingLimit limit = ServingLimit::kNone;
  Resource limiting_resource = Resource::kMemory;  // of the decode step
  StepTime decode_step;
};

// `max_requests`: what the cache of the whole deployment holds (FitResult::max_requests); <= 0
// leaves the cache out of account.
[[nodiscard]] ServingPoint serve_closed_loop(const StepModel& model, const RequestShape& shape,
                                             double num_clients, double max_requests);

[[nodiscard]] ServingPoint serve_open_loop(const StepModel& model, const RequestShape& shape,
                                           double requests_per_s, double max_requests);

// Prefill and decode on different workers.
struct Disaggregation {
  const StepModel* prefill = nullptr;
  const StepModel* decode = nullptr;
  std::int32_t num_prefill_workers = 1;
  std::int32_t num_decode_workers = 1;
};
// `max_requests`: of one decode worker.
[[nodiscard]] ServingPoint serve_closed_loop(const Disaggregation& system,
                                             const RequestShape& shape, double num_clients,
                                             double max_requests);
[[nodiscard]] ServingPoint serve_open_loop(const Disaggregation& system, const RequestShape& shape,
                                           double requests_per_s, double max_requests);

// The most requests per second of one deployment that meet the SLO (mean or p99 TTFT, mean TPOT),
// by bisection on the open loop; 0 when not even one request alone meets it.
struct ServiceTarget {
  double ttft_s = 2.0;
  double tpot_s = 0.05;
  bool is_ttft_p99 = false;
  double max_utilization = 0.8;  // of the prefill queue
};
struct CapacityPoint {
  double requests_per_s = 0.0;
  ServingPoint point;      // at that rate
  std::string limited_by;  // "tpot", "ttft", "kv cache", "prefill queue"
};
[[nodiscard]] CapacityPoint max_request_rate(const StepModel& model, const RequestShape& shape,
                                             const ServiceTarget& target, double max_requests);

}  // namespace moe::planner
