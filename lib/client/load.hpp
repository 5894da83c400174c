#pragma once

// Drives a server: in closed loop (so many clients, each waits for its answer) or in open loop (an
// absolute schedule that no answer delays). One event loop a thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/client/answer_reader.hpp"
#include "lib/client/endpoint.hpp"
#include "lib/client/load_result.hpp"
#include "lib/client/request_source.hpp"
#include "lib/client/transport.hpp"

namespace moe::client {

struct LoadPlan {
  Phase phase = Phase::kMeasured;
  // Open loop: when conversations start, ascending, from the start of the run. Empty: closed loop.
  std::vector<double> arrivals_s;
  std::int64_t concurrency = 1;         // closed loop
  std::int64_t num_conversations = 0;   // closed loop; 0: until the time is up
  std::int64_t first_conversation = 0;  // of the source
  double think_time_s = 0.0;            // from an answer to the client's next request
  double max_duration_s = 0.0;          // nothing is sent later; 0: no limit
  double drain_limit_s = 60.0;          // then what still runs is given up
  std::optional<double> until_ci;       // half width of the interval of median TTFT, over it
  std::int64_t min_samples = 50;        // before until_ci may end the run
  bool stops_at_saturation = false;
  bool stops_when_server_is_gone = true;
  bool keeps_texts = false;
  std::int32_t num_loops = 1;
  TransportOptions transport;

  [[nodiscard]] bool is_open() const { return !arrivals_s.empty(); }
};

struct LoadTools {
  const RequestSource* source = nullptr;
  CountTokens count_tokens;  // may be empty
  Progress* progress = nullptr;
  const Interrupt* interrupt = nullptr;
};

// Throws Error(kRuntime) when the server's name has no address, never for what a server does.
[[nodiscard]] LoadResult run_load(const Endpoint& endpoint, const LoadPlan& plan,
                                  const LoadTools& tools);

// Whether requests pile up: pure, for open loops. `ttft` holds {end of the request, TTFT}.
struct TimedValue {
  double time_s = 0.0;
  double value = 0.0;
};
[[nodiscard]] bool is_saturated(const std::vector<InFlightSample>& in_flight,
                                const std::vector<TimedValue>& ttft, double now_s);

}  // namespace moe::client
