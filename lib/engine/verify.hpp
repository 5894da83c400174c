#pragma once

// Compares the engine, in f32 unless another mode is asked for, with a golden file: a safetensors
// file of inputs and of the values a right implementation computes from them (names and meanings:
// scenarios/checkpoints/README.md). What a file lacks is not compared.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/engine/engine.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::engine {

struct VerifyOptions {
  int num_threads = 1;
  kernels::Isa isa = kernels::Isa::kScalar;
  const kernels::KernelTable* kernel_table = nullptr;  // as in EngineOptions
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  std::int64_t max_batch_tokens = 512;
  std::int64_t max_memory_bytes = 0;
};

struct TensorComparison {
  std::string phase;      // "prompt", "decode", "ragged 0", "batch"
  std::string name;       // of the golden tensor
  int layer = -1;         // -1: outside the layers
  std::string stage;      // "router_logits", "logits", ... : the name without its layer
  bool is_exact = false;  // ids
  std::int64_t num_values = 0;
  std::int64_t num_wrong = 0;
  double max_error = 0.0;  // largest |a - b|
  // Largest |a - b| / allowed, where allowed is what one value may be off: above 1 fails.
  double max_error_ratio = 0.0;
  std::int64_t first_wrong_row = -1;  // position in the prompt, or decode step
  std::int64_t first_wrong_col = -1;
  double expected = 0.0;  // at the first wrong value
  double found = 0.0;

  [[nodiscard]] bool passed() const { return num_wrong == 0; }
};

struct VerifyResult {
  bool passed = false;
  std::vector<std::pair<std::string, std::string>> metadata;  // of the golden file
  std::vector<TensorComparison> comparisons;  // in the order of the computation, phase by phase
  // Index of the comparison where a difference first appears in that order.
  std::optional<std::size_t> first_difference;
  std::vector<std::string> not_compared;  // tensors of the file that no rule reads
  bool is_partial = false;                // interrupted
};

// Loads the model and runs the prompt alone, its decode steps, each ragged prompt
// alone, and all prompts as one batch. Throws Error(kInput) for a golden file that is malformed or
// that does not belong to the model (shapes, token ids), and whatever Engine::load throws.
[[nodiscard]] VerifyResult verify(const model::BoundModel& model,
                                  const std::filesystem::path& golden_file,
                                  const VerifyOptions& options, Progress& progress,
                                  const Interrupt& interrupt);

}  // namespace moe::engine
