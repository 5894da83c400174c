#include "lib/scripted_server/metrics_page.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace moe::scripted_server {
namespace {

class PageWriter {
 public:
  explicit PageWriter(std::string labels) : labels_(std::move(labels)) {}

  template <typename Value>
  void add(std::string_view name, std::string_view type, Value value,
           std::string_view more_labels = {}) {
    declare(name, type);
    write(name, more_labels, value);
  }

  template <typename Value>
  void write(std::string_view name, std::string_view more_labels, Value value) {
    const bool has_both = !labels_.empty() && !more_labels.empty();
    const bool has_any = !labels_.empty() || !more_labels.empty();
    fmt::format_to(std::back_inserter(out_), "{}{}{}{}{}{} {}\n", name, has_any ? "{" : "", labels_,
                   has_both ? "," : "", more_labels, has_any ? "}" : "", value);
  }

  void declare(std::string_view name, std::string_view type) {
    fmt::format_to(std::back_inserter(out_), "# HELP {} Scripted.\n# TYPE {} {}\n", name, name,
                   type);
  }

  void add(std::string_view name, const Histogram& histogram) {
    declare(name, "histogram");
    const std::string bucket = fmt::format("{}_bucket", name);
    std::int64_t below = 0;
    for (std::size_t i = 0; i < kBucketEnds_s.size(); ++i) {
      below += histogram.counts[i];
      write(bucket, fmt::format("le=\"{}\"", kBucketEnds_s[i]), below);
    }
    write(bucket, "le=\"+Inf\"", histogram.count);
    write(fmt::format("{}_count", name), "", histogram.count);
    write(fmt::format("{}_sum", name), "", histogram.sum_s);
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string labels_;
  std::string out_;
};

// A label's value: backslash, quote and line break are escaped.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

double kv_use(const Script& script, const Counters& counters) {
  return std::min(
      1.0, static_cast<double>(counters.held_tokens) / static_cast<double>(script.kv_tokens));
}

std::string vllm_page(const Script& script, const Counters& counters) {
  PageWriter page(fmt::format("engine=\"0\",model_name=\"{}\"", label_value(script.model)));
  page.add("vllm:num_requests_running", "gauge", counters.running);
  page.add("vllm:num_requests_waiting", "gauge", counters.waiting);
  page.add("vllm:kv_cache_usage_perc", "gauge", kv_use(script, counters));
  page.add("vllm:prefix_cache_queries_total", "counter", counters.prompt_tokens);
  page.add("vllm:prefix_cache_hits_total", "counter", 0);
  page.add("vllm:num_preemptions_total", "counter", 0);
  page.add("vllm:prompt_tokens_total", "counter", counters.prompt_tokens);
  page.add("vllm:generation_tokens_total", "counter", counters.generated_tokens);
  page.declare("vllm:request_success_total", "counter");
  page.write("vllm:request_success_total", "finished_reason=\"stop\"", counters.finished_stop);
  page.write("vllm:request_success_total", "finished_reason=\"length\"", counters.finished_length);
  page.write("vllm:request_success_total", "finished_reason=\"abort\"", counters.finished_abort);
  page.write("vllm:request_success_total", "finished_reason=\"error\"", counters.finished_error);
  page.add("vllm:time_to_first_token_seconds", counters.ttft);
  page.add("vllm:e2e_request_latency_seconds", counters.end_to_end);
  page.add("vllm:request_queue_time_seconds", counters.queue);
  page.add("vllm:cache_config_info", "gauge", 1,
           fmt::format("block_size=\"16\",num_gpu_blocks=\"{}\"", script.kv_tokens / 16));
  return page.take();
}

std::string sglang_page(const Script& script, const Counters& counters) {
  PageWriter page(fmt::format("model_name=\"{}\"", label_value(script.model)));
  page.add("sglang:num_running_reqs", "gauge", counters.running);
  page.add("sglang:num_queue_reqs", "gauge", counters.waiting);
  page.add("sglang:num_used_tokens", "gauge", counters.held_tokens);
  page.add("sglang:token_usage", "gauge", kv_use(script, counters));
  page.add("sglang:cache_hit_rate", "gauge", 0.0);
  page.add("sglang:prompt_tokens_total", "counter", counters.prompt_tokens);
  page.add("sglang:generation_tokens_total", "counter", counters.generated_tokens);
  page.add("sglang:num_requests_total", "counter",
           counters.finished_stop + counters.finished_length);
  page.add("sglang:time_to_first_token_seconds", counters.ttft);
  page.add("sglang:e2e_request_latency_seconds", counters.end_to_end);
  return page.take();
}

std::string llama_page(const Script& script, const Counters& counters) {
  (void)script;
  PageWriter page("");
  page.add("llamacpp:prompt_tokens_total", "counter", counters.prompt_tokens);
  page.add("llamacpp:tokens_predicted_total", "counter", counters.generated_tokens);
  page.add("llamacpp:requests_processing", "gauge", counters.running);
  page.add("llamacpp:requests_deferred", "gauge", counters.waiting);
  return page.take();
}

}  // namespace

void Histogram::add(double value_s) {
  std::size_t bucket = 0;
  while (bucket < kBucketEnds_s.size() && value_s > kBucketEnds_s[bucket]) ++bucket;
  ++counts[bucket];
  ++count;
  sum_s += value_s;
}

std::string metrics_page(const Script& script, const Counters& counters) {
  switch (script.dialect) {
    case Dialect::kSglang:
      return sglang_page(script, counters);
    case Dialect::kLlamaCpp:
      return llama_page(script, counters);
    case Dialect::kVllm:
    case Dialect::kTensorRtLlm:
      return vllm_page(script, counters);
  }
  return {};
}

}  // namespace moe::scripted_server
