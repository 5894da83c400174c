#pragma once

// What is sent and when: prompts and arrival times from the options, for lib/client.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/bench/serve_args.hpp"
#include "lib/client/load.hpp"
#include "lib/client/request_source.hpp"
#include "lib/workload/trace_profile.hpp"

namespace moe::app {

// Inputs that are read once, before the server is asked anything.
struct ServeInputs {
  std::vector<client::TextConversation> conversations;
  std::vector<client::TraceRequest> trace;
  std::optional<workload::TraceProfile> trace_profile;
  std::optional<double> trace_peak_per_s;  // of the busiest 60 s, the rate scale not applied
  client::CountTokens count_tokens;        // of --checkpoint; may be empty
  std::int32_t end_id = 0;                 // random ids are below this
  bool is_end_id_guessed = false;
  bool prefers_chat = false;  // a data set of conversations

  [[nodiscard]] bool uses_ids() const { return conversations.empty(); }
};

// Throws Error(kInput), Error(kUsage).
[[nodiscard]] ServeInputs read_inputs(const LoadArgs& load, const RequestArgs& request);

[[nodiscard]] std::unique_ptr<client::RequestSource> make_source(const ServeInputs& inputs,
                                                                 const LoadArgs& load,
                                                                 const RequestArgs& request,
                                                                 client::Api api,
                                                                 const client::BodyOptions& body);

enum class LoadKind : std::uint8_t { kClosed, kRate, kCurve, kTrace, kStress };

// One load to measure.
struct ServePoint {
  LoadKind kind = LoadKind::kClosed;
  double load = 1.0;  // clients, or requests a second; of a curve or trace its mean
  std::string label;  // "c16", "r4.5", "trace"
};

[[nodiscard]] std::vector<ServePoint> load_points(const LoadArgs& load, const ServeInputs& inputs);
[[nodiscard]] ServePoint closed_point(double clients);
[[nodiscard]] ServePoint rate_point(double rate);

// Fills what the point decides: arrivals or concurrency, count, duration.
void plan_point(const ServePoint& point, const LoadArgs& load, const ServeInputs& inputs,
                client::LoadPlan& plan);

// "128", "100-200" (uniform), "512~0.8" (log-normal, mean and variation), or a workload's JSON.
// Throws Error(kUsage).
[[nodiscard]] workload::LengthDistribution parse_length_option(const std::string& text,
                                                               const std::string& option);

}  // namespace moe::app
