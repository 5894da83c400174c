// What a token costs the client before the network: a stream of one-token events, as vLLM sends
// them, through the event readers.

#include <string>

#include <benchmark/benchmark.h>

#include "lib/client/answer_reader.hpp"

namespace moe::client {
namespace {

constexpr int kTokens = 1000;

// `has_usage`: with the running count, which makes an event half as long again.
std::string stream(bool has_usage) {
  std::string text;
  for (int i = 1; i <= kTokens; ++i) {
    text +=
        "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":"
        "1700000000,\"model\":\"model\",\"choices\":[{\"index\":0,\"text\":\" token\","
        "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":[307],"
        "\"prompt_token_ids\":null}]";
    if (has_usage) {
      text += ",\"usage\":{\"prompt_tokens\":128,\"total_tokens\":" + std::to_string(128 + i) +
              ",\"completion_tokens\":" + std::to_string(i) + "}";
    }
    text += "}\n\n";
  }
  return text + "data: [DONE]\n\n";
}

void read_stream(benchmark::State& state) {
  const std::string text = stream(state.range(0) != 0);
  const std::size_t event_bytes = text.size() / kTokens;
  EventReader events;
  for (auto _ : state) {
    AnswerReader reader(false);
    reader.set_status(200);
    RequestRecord record;
    record.sent_s = 0.0;
    for (std::size_t at = 0; at < text.size(); at += event_bytes) {
      reader.feed(std::string_view(text).substr(at, event_bytes), 1.0, events);
    }
    reader.finish({}, events, nullptr, record);
    benchmark::DoNotOptimize(record.output_tokens);
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(read_stream)->ArgName("usage")->Arg(0)->Arg(1);

}  // namespace
}  // namespace moe::client
