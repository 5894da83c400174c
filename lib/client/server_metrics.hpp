#pragma once

// The server's own view of a run: its /metrics page before, during and after, and what it says it
// is. vLLM, SGLang, TensorRT-LLM and llama.cpp name the same things differently; a value that a
// page does not carry stays absent.

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.hpp"
#include "lib/client/endpoint.hpp"
#include "lib/client/prometheus_text.hpp"

namespace moe::client {

enum class ServerKind : std::uint8_t { kUnknown, kVllm, kSglang, kLlamaCpp, kTensorRtLlm };
[[nodiscard]] const char* name_of(ServerKind kind);

// One reading of the page. Totals count since the server's start.
struct ServerSnapshot {
  double time_s = 0.0;  // on the run's clock, when the page had come
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<double> kv_use_ratio;  // 0 to 1; of several engines the mean
  std::optional<double> preemptions_total;
  std::optional<double> prefix_queried_tokens_total;
  std::optional<double> prefix_hit_tokens_total;
  std::optional<double> prompt_tokens_total;
  std::optional<double> generated_tokens_total;
  std::optional<double> finished_requests_total;
  std::map<std::string, double> finished_by_reason;  // totals
  std::optional<MetricHistogram> ttft_s;
  std::optional<MetricHistogram> inter_token_s;
  std::optional<MetricHistogram> end_to_end_s;
  std::optional<MetricHistogram> queue_s;
  std::optional<MetricHistogram> prefill_s;
  std::optional<MetricHistogram> decode_s;
  // Mean over GPUs divided by the busiest: 1 is even. Sum and count of the readings.
  std::optional<MetricHistogram> expert_balance;
};

[[nodiscard]] ServerKind kind_of(const MetricsPage& page);
[[nodiscard]] ServerSnapshot read_snapshot(const MetricsPage& page, double time_s);

// What happened between two readings.
struct ServerDelta {
  bool was_restarted = false;  // a total went down; then everything is absent
  std::optional<double> preemptions;
  std::optional<double> prefix_queried_tokens;
  std::optional<double> prefix_hit_ratio;
  std::optional<double> prompt_tokens;
  std::optional<double> generated_tokens;
  std::optional<double> finished_requests;
  std::map<std::string, double> finished_by_reason;
  std::optional<MetricHistogram> ttft_s;
  std::optional<MetricHistogram> inter_token_s;
  std::optional<MetricHistogram> end_to_end_s;
  std::optional<MetricHistogram> queue_s;
  std::optional<MetricHistogram> prefill_s;
  std::optional<MetricHistogram> decode_s;
  std::optional<double> expert_balance;
};
[[nodiscard]] ServerDelta delta_of(const ServerSnapshot& before, const ServerSnapshot& after);

// What a server says about itself; empty where it does not say.
struct ServerIdentity {
  ServerKind kind = ServerKind::kUnknown;
  std::string version;
  std::vector<std::string> models;
  std::optional<std::int64_t> max_model_tokens;
  std::optional<double> kv_cache_tokens;  // the size of the KV cache
};

// From the bodies of the information endpoints; an empty text is an endpoint that is not there.
// Nothing that a body holds makes this throw.
struct IdentityTexts {
  std::string models;       // /v1/models
  std::string version;      // /version
  std::string server_info;  // /get_server_info
  std::string props;        // /props
  std::string metrics;      // /metrics
};
[[nodiscard]] ServerIdentity read_identity(const IdentityTexts& texts);

// Asks the endpoint for each of them; an endpoint that does not answer gives an unknown server.
[[nodiscard]] ServerIdentity identify_server(const Endpoint& endpoint);

// Reads the page again and again on a thread of its own. Its requests are not the load's.
class MetricsPoller {
 public:
  // Times are those of `clock` minus origin_s. The clock must outlive this.
  MetricsPoller(Endpoint endpoint, double interval_s, const Clock& clock, double origin_s);
  MetricsPoller(const MetricsPoller&) = delete;
  MetricsPoller& operator=(const MetricsPoller&) = delete;
  ~MetricsPoller();

  // One reading now, on the caller's thread. Absent when there is no page.
  [[nodiscard]] std::optional<ServerSnapshot> read_now();

  void start();
  // The readings of the thread, in order of time.
  [[nodiscard]] std::vector<ServerSnapshot> stop();

  [[nodiscard]] std::int64_t num_failed() const { return num_failed_.load(); }

 private:
  void poll();

  Endpoint endpoint_;
  double interval_s_;
  const Clock& clock_;
  double origin_s_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::int64_t> num_failed_{0};
  std::vector<ServerSnapshot> snapshots_;  // of the thread until it is joined
  std::thread thread_;
};

}  // namespace moe::client
