#pragma once

// The figures of a load run, from its records. Every definition stands here.
//
//   ttft_s    first event with a generated token (reasoning included) minus the real send
//   ttfvt_s   first event that a user sees (text or tool call) minus the real send
//   icl_s     gaps between arrivals that carried tokens; events of one read are one arrival
//   itl_s     the same gaps, each divided by its tokens and counted once for each of them
//   tpot_s    (last token - first token) / (N - 1), one value a request, N > 1
//   e2e_s     last token minus send; of a plain answer, its end minus send
//   *_from_intended_s  the same from when the plan wanted the request sent
//
// Failed and given up requests are in no latency sample and in no rate; they are counted.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/client/load_result.hpp"

namespace moe::client {

// What a request must keep; absent limits do not matter.
struct ServiceLevel {
  std::optional<double> ttft_s;
  std::optional<double> tpot_s;
  std::optional<double> e2e_s;
  double share = 0.99;  // of all requests sent that must keep them, for a load to meet the level

  [[nodiscard]] bool is_set() const { return ttft_s || tpot_s || e2e_s; }
};

struct LevelShares {
  // Of all measured requests that ended, failed ones included; a value that is missing is a miss.
  std::optional<double> all;
  std::optional<double> ttft;
  std::optional<double> tpot;
  std::optional<double> e2e;
};

// One slice of time.
struct TimeBin {
  double begin_s = 0.0;
  double width_s = 0.0;
  std::int64_t sent = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  double output_tokens = 0.0;
  std::optional<double> ttft_median_s;  // of requests sent in the slice
  std::optional<double> ttft_max_s;
  double in_flight_mean = 0.0;
};

struct LoadFigures {
  std::vector<double> ttft_s;
  std::vector<double> ttft_from_intended_s;
  std::vector<double> ttfvt_s;
  std::vector<double> icl_s;
  std::vector<double> itl_s;
  std::vector<double> tpot_s;
  std::vector<double> e2e_s;
  std::vector<double> e2e_from_intended_s;
  std::vector<double> connect_s;

  std::int64_t num_requests = 0;  // measured, ended
  std::int64_t num_succeeded = 0;
  std::int64_t num_resent = 0;  // went out again since a kept connection was dead
  std::array<std::int64_t, kNumFailures> failures = {};  // by Failure
  std::array<std::int64_t, 5> token_sources = {};        // successes by TokenSource

  double window_s = 0.0;  // first send to last end of a success
  std::optional<double> requests_per_s;
  std::optional<double> offered_requests_per_s;  // sends over the time of sending
  std::optional<double> input_tokens_per_s;
  std::optional<double> output_tokens_per_s;       // absent when a success has no count
  std::optional<double> peak_output_tokens_per_s;  // the busiest second
  std::optional<double> goodput_requests_per_s;
  LevelShares shares;

  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;
  bool has_cached_tokens = false;
  std::int64_t requested_output_tokens = 0;   // of successes with a limit
  std::int64_t num_short_outputs = 0;         // fewer tokens than asked for
  std::int64_t num_other_prompt_lengths = 0;  // the server counts another prompt than was sent
  std::optional<double> tokens_per_arrival;   // above 1: bundles
  bool has_exact_arrivals = true;
  // |other count / counted - 1| at most, where two sources were there.
  std::optional<double> largest_disagreement_ratio;

  // Of the real sends, in windows of five requests on average: 1 is Poisson.
  std::optional<double> dispersion;
  std::optional<double> gap_cv;

  std::vector<TimeBin> bins;
  std::vector<std::string> violations;  // arithmetic that does not add up: bugs
};

[[nodiscard]] LoadFigures figures_of(const LoadResult& result, const ServiceLevel& level);

// Several runs of the same load as one: samples pooled, windows added.
[[nodiscard]] LoadResult merge_rounds(std::vector<LoadResult> rounds);

// Whether the client itself limited the run.
struct ClientLimits {
  double send_lag_p99_s = 0.010;
  double receive_delay_p99_s = 0.050;  // with kernel stamps a delay alone changes no figure
  double cpu_share = 0.90;             // of each loop's thread
};
struct ClientVerdict {
  bool is_bound = false;
  std::vector<std::string> reasons;
  std::optional<double> send_lag_p99_s;
  std::optional<double> receive_delay_p99_s;
  std::optional<double> cpu_share;
};
// The lag of a closed loop counts from the second request of a client on (load_loop.cpp).
[[nodiscard]] ClientVerdict judge_client(const LoadResult& result, const ClientLimits& limits);

}  // namespace moe::client
