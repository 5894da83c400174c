// Where the words of other clients mean something else, and what every file can give away.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lib/client_reports/readers.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::client_reports {
namespace {

struct Definition {
  Tool tool;
  const char* code;
  const char* message;
  const char* advice;
};

constexpr Definition kDefinitions[] = {
    {Tool::kVllmServe, "import.definition.ttft",
     "TTFT ends at the first event with a choice, a role-only one included",
     "in chat it can be the role event's time; look for import.prelude_counted"},
    {Tool::kVllmServe, "import.definition.itl",
     "its ITL is the gap between events, each taken as one token; here it is icl_s",
     "tpot_s is (latency - TTFT) / (tokens - 1), as ours"},
    {Tool::kVllmServe, "import.definition.success",
     "a stream that ends early or carries an error object counts as completed",
     "compare output_lens with what was asked for"},
    {Tool::kAiperf, "import.definition.itl",
     "its inter_token_latency is a mean a request, our tpot_s; its inter_chunk_latency is our "
     "icl_s",
     ""},
    {Tool::kAiperf, "import.definition.tokens",
     "tokens are counted by the client's own tokenizer unless it was told otherwise",
     "--use-server-token-count"},
    {Tool::kAiperf, "import.definition.success",
     "a stream that ends early or carries an error object before [DONE] counts as completed",
     "look for import.short_outputs"},
    {Tool::kGuidellm, "import.definition.itl",
     "its ITL is a mean a request, our tpot_s; the gaps themselves, and so stalls, are not kept",
     ""},
    {Tool::kGuidellm, "import.definition.tpot",
     "its TPOT is latency / tokens and includes the first token; here tpot_s is computed from the "
     "requests by (last - first) / (tokens - 1)",
     ""},
    {Tool::kGuidellm, "import.definition.clock",
     "times are of the wall clock, which can be stepped while a run goes on", ""},
    {Tool::kGuidellm, "import.definition.success", "a stream that ends early counts as successful",
     "look for import.short_outputs"},
    {Tool::kInferencePerf, "import.definition.ttft",
     "reasoning is not read: TTFT of a reasoning model is the time to the first visible token", ""},
    {Tool::kInferencePerf, "import.definition.itl",
     "an event with several tokens is one gap and zeros", "read tpot_s"},
    {Tool::kInferencePerf, "import.definition.success",
     "a stream that ends early or carries an error object counts as a success", ""},
    {Tool::kVllmThroughput, "import.definition.throughput",
     "an offline batch: total tokens are prompt and output together, and there is no latency", ""},
};

bool is_interpolated(Tool tool) {
  return tool != Tool::kGuidellm;
}

}  // namespace

const char* tool_name(Tool tool) {
  switch (tool) {
    case Tool::kVllmServe:
      return "vllm bench serve";
    case Tool::kVllmThroughput:
      return "vllm bench throughput";
    case Tool::kAiperf:
      return "AIPerf";
    case Tool::kGuidellm:
      return "GuideLLM";
    case Tool::kInferencePerf:
      return "inference-perf";
  }
  return "";
}

void add_request(const RequestFigures& figures, const std::string& source, ClientReport& report) {
  const auto add = [&](const char* name, const std::optional<double>& value_s) {
    if (!value_s || *value_s < 0.0) return;
    Latency& latency = report.latencies[name];
    if (latency.their_name.empty()) latency.their_name = source;
    latency.samples_s.push_back(*value_s);
  };
  add("ttft_s", figures.ttft_s);
  add("ttfvt_s", figures.ttfvt_s);
  add("e2el_s", figures.latency_s);
  if (figures.ttft_s && figures.latency_s && figures.output_tokens.value_or(0) > 1) {
    add("tpot_s",
        (*figures.latency_s - *figures.ttft_s) / static_cast<double>(*figures.output_tokens - 1));
  }
}

void add_definitions(ClientReport& report) {
  for (const Definition& one : kDefinitions) {
    if (one.tool != report.tool) continue;
    report.doubts.push_back({one.code, DoubtLevel::kInfo,
                             fmt::format("{}: {}", tool_name(one.tool), one.message), one.advice});
  }
}

void add_short_outputs(std::int64_t num_short, std::int64_t num_known, ClientReport& report) {
  if (num_short <= 0 || num_known <= 0) return;
  report.doubts.push_back(
      {"import.short_outputs", DoubtLevel::kWarning,
       fmt::format("{} of {} requests that count as successes are shorter than was asked for: "
                   "streams that were cut short, an error in the stream, or a model that ended by "
                   "itself",
                   num_short, num_known),
       "look at the server's log; with ignore_eos none may be short"});
}

void add_common_doubts(ClientReport& report) {
  const std::int64_t completed = report.completed.value_or(0);
  if (completed == 0) {
    report.has_results = false;
    // What a client writes when nothing worked (zeros, or leftovers) is no measurement.
    report.latencies.clear();
    report.requests_per_s.reset();
    report.output_tokens_per_s.reset();
    report.total_tokens_per_s.reset();
    report.doubts.push_back(
        {"import.nothing_measured", DoubtLevel::kError,
         fmt::format("no request succeeded{}",
                     report.failed ? fmt::format(", {} failed", *report.failed) : std::string()),
         "find out why before anything is compared"});
  } else if (report.failed.value_or(0) > 0) {
    report.doubts.push_back({"import.failed_requests", DoubtLevel::kWarning,
                             fmt::format("{} of {} requests failed; the figures are of the others",
                                         *report.failed, *report.failed + completed),
                             ""});
  }
  bool has_samples = false;
  bool has_summary = false;
  for (const auto& [name, latency] : report.latencies) {
    has_samples = has_samples || !latency.samples_s.empty();
    has_summary = has_summary || (latency.samples_s.empty() && latency.mean_s);
  }
  if (has_summary && !has_samples) {
    report.doubts.push_back(
        {"import.no_samples", DoubtLevel::kWarning,
         fmt::format("the file holds no single requests{}: percentiles stay in the table of what "
                     "the tool printed and cannot be judged",
                     is_interpolated(report.tool) ? " and its percentiles are interpolated" : ""),
         report.tool == Tool::kVllmServe ? "run it with --save-detailed"
                                         : "give the file of single requests with --records"});
  }
  const std::int64_t needed = stats::min_samples_for(0.99);
  if (completed > 0 && completed < needed && !report.latencies.empty()) {
    report.doubts.push_back({"import.too_few_for_p99", DoubtLevel::kWarning,
                             fmt::format("{} requests do not carry a p99, which takes {}; the tool "
                                         "prints one all the same",
                                         completed, needed),
                             ""});
  }
}

}  // namespace moe::client_reports
