// Speed of encoding and decoding, in bytes of text per second on one core.

#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "lib/model/tokenizer.hpp"

namespace {

using moe::model::Tokenizer;

Tokenizer load(const char* name) {
  return Tokenizer::load(std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/tokenizers" / name /
                         "tokenizer.json");
}

// Prose, code and other scripts with numbers that differ, so that not every word repeats.
std::string sample_text(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "The router sends token " + std::to_string(i * 7919) +
            " to its experts, and they don't wait.\n    for (int i = 0; i < n" + std::to_string(i) +
            "; ++i) { sum += weights[i] * values[i]; }\n"
            "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E na\xC3\xAFve caf\xC3\xA9 \xF0\x9F\x98\x80\r\n";
  }
  return text;
}

void encode(benchmark::State& state, const char* name) {
  const Tokenizer tokenizer = load(name);
  const std::string text = sample_text(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, false));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void decode(benchmark::State& state, const char* name) {
  const Tokenizer tokenizer = load(name);
  const std::string text = sample_text(static_cast<std::size_t>(state.range(0)));
  const std::vector<std::int32_t> ids = tokenizer.encode(text, false);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids, false));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

// One pre-token of this many bytes: time must grow hardly faster than the length.
void encode_one_word(benchmark::State& state, const char* name) {
  const Tokenizer tokenizer = load(name);
  std::string text;
  while (text.size() < static_cast<std::size_t>(state.range(0))) text += "therein";
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, false));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

BENCHMARK_CAPTURE(encode, qwen2, "bl-qwen2")->Arg(200)->Arg(1 << 20);
BENCHMARK_CAPTURE(encode, mistral, "real-mistral-v1")->Arg(200)->Arg(1 << 20);
BENCHMARK_CAPTURE(decode, qwen2, "bl-qwen2")->Arg(1 << 20);
BENCHMARK_CAPTURE(decode, mistral, "real-mistral-v1")->Arg(1 << 20);
BENCHMARK_CAPTURE(encode_one_word, qwen2, "bl-qwen2")->RangeMultiplier(8)->Range(1 << 10, 8 << 20);

}  // namespace
