#include "lib/app/bench/logits_file.hpp"

#include <algorithm>

#include "lib/model/safetensors_writer.hpp"

namespace moe::app {
namespace {

// Bounds what the logits take: the rows of so many tokens are in memory at a time.
constexpr std::int64_t kLogitRowsAtOnce = 32;

}  // namespace

void write_prompt_logits(engine::Engine& engine, std::span<const std::int32_t> prompt,
                         const std::filesystem::path& file) {
  const auto num_tokens = static_cast<std::int64_t>(prompt.size());
  model::SafetensorsWriter writer(
      file,
      {{"logits", model::Dtype::kF32, {num_tokens, engine.config().vocab_size}},
       {"input_ids", model::Dtype::kI32, {num_tokens}}},
      {{"writer", "moe-bench generate"}});
  engine.reset(0);
  for (std::int64_t begin = 0; begin < num_tokens; begin += kLogitRowsAtOnce) {
    const std::int64_t count = std::min(kLogitRowsAtOnce, num_tokens - begin);
    const engine::BatchEntry entry{
        0, prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), true};
    writer.write(std::as_bytes(engine.forward({&entry, 1})));
  }
  engine.reset(0);
  writer.write(std::as_bytes(prompt));
  writer.finish();
}

}  // namespace moe::app
