#include "lib/client/server_metrics.hpp"

#include <array>
#include <initializer_list>
#include <string_view>

namespace moe::client {
namespace {

using Names = std::initializer_list<const char*>;

// The first of these names that the page carries; older releases use other names.
std::optional<double> first_sum(const MetricsPage& page, Names names) {
  for (const char* name : names) {
    if (const std::optional<double> value = page.sum(name)) return value;
  }
  return std::nullopt;
}

std::optional<double> first_mean(const MetricsPage& page, Names names) {
  for (const char* name : names) {
    if (const std::optional<double> value = page.mean(name)) return value;
  }
  return std::nullopt;
}

std::optional<MetricHistogram> first_histogram(const MetricsPage& page, Names names) {
  for (const char* name : names) {
    if (auto histogram = histogram_of(page, name)) return histogram;
  }
  return std::nullopt;
}

// Retractions of SGLang are a histogram of counts: its sum is how many there were.
std::optional<double> preemptions_of(const MetricsPage& page) {
  return first_sum(page, {"vllm:num_preemptions_total", "trtllm_num_preemptions_total",
                          "sglang:num_retractions_sum"});
}

// True when a total went down, which only a new process can make it do.
bool fell(const std::optional<double>& before, const std::optional<double>& after) {
  return before && after && *after < *before;
}

std::optional<double> minus(const std::optional<double>& after,
                            const std::optional<double>& before) {
  if (!before || !after) return std::nullopt;
  return *after - *before;
}

std::optional<MetricHistogram> histogram_minus(const std::optional<MetricHistogram>& after,
                                               const std::optional<MetricHistogram>& before) {
  if (!before || !after) return std::nullopt;
  return added(*before, *after);
}

}  // namespace

const char* name_of(ServerKind kind) {
  switch (kind) {
    case ServerKind::kUnknown:
      return "unknown";
    case ServerKind::kVllm:
      return "vllm";
    case ServerKind::kSglang:
      return "sglang";
    case ServerKind::kLlamaCpp:
      return "llama.cpp";
    case ServerKind::kTensorRtLlm:
      return "tensorrt-llm";
  }
  return "unknown";
}

ServerKind kind_of(const MetricsPage& page) {
  constexpr std::array<std::pair<const char*, ServerKind>, 4> kPrefixes = {
      {{"vllm:", ServerKind::kVllm},
       {"sglang:", ServerKind::kSglang},
       {"llamacpp:", ServerKind::kLlamaCpp},
       {"trtllm_", ServerKind::kTensorRtLlm}}};
  for (const auto& [prefix, kind] : kPrefixes) {
    if (page.has_prefix(prefix)) return kind;
  }
  return ServerKind::kUnknown;
}

ServerSnapshot read_snapshot(const MetricsPage& page, double time_s) {
  ServerSnapshot shot;
  shot.time_s = time_s;
  shot.running = first_sum(page, {"vllm:num_requests_running", "sglang:num_running_reqs",
                                  "llamacpp:requests_processing", "trtllm_num_requests_running"});
  shot.waiting = first_sum(page, {"vllm:num_requests_waiting", "sglang:num_queue_reqs",
                                  "llamacpp:requests_deferred", "trtllm_num_requests_waiting"});
  shot.kv_use_ratio = first_mean(
      page, {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
             "llamacpp:kv_cache_usage_ratio", "trtllm_kv_cache_utilization"});
  shot.preemptions_total = preemptions_of(page);
  shot.prefix_queried_tokens_total =
      first_sum(page, {"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"});
  shot.prefix_hit_tokens_total =
      first_sum(page, {"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total",
                       "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total"});
  shot.prompt_tokens_total = first_sum(
      page,
      {"vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"});
  // SGLang counts every prompt token as asked of the cache; llama.cpp counts the hits apart.
  if (!shot.prefix_queried_tokens_total && shot.prefix_hit_tokens_total &&
      shot.prompt_tokens_total) {
    const bool hits_are_apart = kind_of(page) == ServerKind::kLlamaCpp;
    shot.prefix_queried_tokens_total =
        *shot.prompt_tokens_total + (hits_are_apart ? *shot.prefix_hit_tokens_total : 0.0);
  }
  shot.generated_tokens_total =
      first_sum(page, {"vllm:generation_tokens_total", "sglang:generation_tokens_total",
                       "llamacpp:tokens_predicted_total"});
  shot.finished_requests_total = first_sum(
      page,
      {"vllm:request_success_total", "sglang:num_requests_total", "trtllm_request_success_total"});
  for (const MetricSample& sample : page.samples) {
    const std::string_view reason = sample.label("finished_reason");
    const bool is_finish = sample.name == "vllm:request_success_total" ||
                           sample.name == "trtllm_request_success_total";
    if (is_finish && !reason.empty()) shot.finished_by_reason[std::string(reason)] += sample.value;
  }
  shot.ttft_s = first_histogram(
      page, {"vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds",
             "trtllm_time_to_first_token_seconds"});
  shot.inter_token_s = first_histogram(
      page, {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
             "sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds",
             "trtllm_time_per_output_token_seconds"});
  shot.end_to_end_s = first_histogram(
      page, {"vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds",
             "trtllm_e2e_request_latency_seconds"});
  shot.queue_s =
      first_histogram(page, {"vllm:request_queue_time_seconds", "sglang:queue_time_seconds",
                             "trtllm_request_queue_time_seconds"});
  shot.prefill_s = first_histogram(page, {"vllm:request_prefill_time_seconds"});
  shot.decode_s = first_histogram(page, {"vllm:request_decode_time_seconds"});
  shot.expert_balance = first_histogram(page, {"sglang:eplb_balancedness"});
  return shot;
}

ServerDelta delta_of(const ServerSnapshot& before, const ServerSnapshot& after) {
  ServerDelta delta;
  delta.was_restarted = fell(before.prompt_tokens_total, after.prompt_tokens_total) ||
                        fell(before.generated_tokens_total, after.generated_tokens_total) ||
                        fell(before.finished_requests_total, after.finished_requests_total);
  if (delta.was_restarted) return delta;
  delta.preemptions = minus(after.preemptions_total, before.preemptions_total);
  delta.prefix_queried_tokens =
      minus(after.prefix_queried_tokens_total, before.prefix_queried_tokens_total);
  const std::optional<double> hits =
      minus(after.prefix_hit_tokens_total, before.prefix_hit_tokens_total);
  if (hits && delta.prefix_queried_tokens && *delta.prefix_queried_tokens > 0.0) {
    delta.prefix_hit_ratio = *hits / *delta.prefix_queried_tokens;
  }
  delta.prompt_tokens = minus(after.prompt_tokens_total, before.prompt_tokens_total);
  delta.generated_tokens = minus(after.generated_tokens_total, before.generated_tokens_total);
  delta.finished_requests = minus(after.finished_requests_total, before.finished_requests_total);
  for (const auto& [reason, total] : after.finished_by_reason) {
    const auto was = before.finished_by_reason.find(reason);
    delta.finished_by_reason[reason] =
        total - (was == before.finished_by_reason.end() ? 0.0 : was->second);
  }
  delta.ttft_s = histogram_minus(after.ttft_s, before.ttft_s);
  delta.inter_token_s = histogram_minus(after.inter_token_s, before.inter_token_s);
  delta.end_to_end_s = histogram_minus(after.end_to_end_s, before.end_to_end_s);
  delta.queue_s = histogram_minus(after.queue_s, before.queue_s);
  delta.prefill_s = histogram_minus(after.prefill_s, before.prefill_s);
  delta.decode_s = histogram_minus(after.decode_s, before.decode_s);
  if (const auto balance = histogram_minus(after.expert_balance, before.expert_balance)) {
    delta.expert_balance = balance->mean();
  }
  return delta;
}

}  // namespace moe::client
