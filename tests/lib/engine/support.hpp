#pragma once

// Checkpoints of scenarios/ and engines on them.

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/engine/engine.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::engine::testing {

inline std::filesystem::path checkpoint_dir(const std::string& name) {
  return std::filesystem::path(MOE_SOURCE_DIR) / "scenarios" / "checkpoints" / name;
}

// Levels that this machine can run.
inline std::vector<kernels::Isa> runnable_isas() {
  std::vector<kernels::Isa> isas;
  for (int level = 0; level < kernels::kNumIsas; ++level) {
    const auto isa = static_cast<kernels::Isa>(level);
    if (kernels::isa_supported(isa) && kernels::kernel_table(isa) != nullptr) isas.push_back(isa);
  }
  return isas;
}

inline Engine load_engine(const model::BoundModel& model, const EngineOptions& options) {
  NullProgress progress;
  const Interrupt interrupt;
  return Engine::load(model, options, progress, interrupt);
}

// Best level, room for `sequences` of `context` tokens.
inline EngineOptions small_options(std::int64_t context, std::int32_t sequences = 1) {
  EngineOptions options;
  options.isa = runnable_isas().back();
  options.max_context = context;
  options.max_sequences = sequences;
  return options;
}

}  // namespace moe::engine::testing
