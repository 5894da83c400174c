#pragma once

// The logits of a prompt as a golden file, so that another run, engine or format can be compared
// with this one.

#include <cstdint>
#include <filesystem>
#include <span>

#include "lib/engine/engine.hpp"

namespace moe::app {

// Runs the prompt in sequence 0, which is reset before and after, and writes input_ids [tokens] and
// logits [tokens, vocab_size] to `file`. Throws Error(kRuntime) when it cannot be written.
void write_prompt_logits(engine::Engine& engine, std::span<const std::int32_t> prompt,
                         const std::filesystem::path& file);

}  // namespace moe::app
