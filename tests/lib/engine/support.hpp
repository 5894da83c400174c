#pragma once

// Checkpoints of scenarios/ and engines on them.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/base/rng.hpp"
#include "lib/engine/engine.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::engine::testing {

inline std::filesystem::path checkpoint_dir(const std::string& name) {
  return std::filesystem::path(MOE_SOURCE_DIR) / "scenarios" / "checkpoints" / name;
}

// Those with recorded numbers: every family, and every encoding of weights.
inline std::vector<std::string> golden_checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_dir(""))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
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

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int32_t vocab,
                                               std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

// Logits of every token, copied.
inline std::vector<float> all_logits(Engine& engine, SequenceId sequence,
                                     std::span<const std::int32_t> tokens) {
  const BatchEntry entry{sequence, tokens, true};
  const std::span<const float> logits = engine.forward({&entry, 1});
  return {logits.begin(), logits.end()};
}

// A checkpoint whose weights a test may change: views point into memory of this object.
class EditableModel {
 public:
  explicit EditableModel(const std::string& name)
      : model(model::bind_checkpoint(checkpoint_dir(name))), mapping_(model.files) {
    model.files = nullptr;  // not all views lie in file mappings any more
  }

  model::BoundModel model;

  // Replaces the matrix by an f32 copy with every value mapped by `change`(row, col, value).
  void edit(model::MatrixView& view,
            const std::function<float(std::int64_t, std::int64_t, float)>& change) {
    std::vector<float>& values =
        storage_.emplace_back(static_cast<std::size_t>(view.rows * view.cols));
    for (std::int64_t row = 0; row < view.rows; ++row) {
      float* const out = values.data() + row * view.cols;
      model::read_matrix_row(view, row, out);
      for (std::int64_t col = 0; col < view.cols; ++col) out[col] = change(row, col, out[col]);
    }
    model::MatrixView edited;
    edited.name = view.name;
    edited.dtype = model::Dtype::kF32;
    edited.rows = view.rows;
    edited.cols = view.cols;
    edited.data = reinterpret_cast<const std::byte*>(values.data());
    edited.row_stride = view.cols;
    view = edited;
  }
  void scale(model::MatrixView& view, float factor) {
    edit(view, [factor](std::int64_t, std::int64_t, float value) { return factor * value; });
  }
  void scale(model::VectorView& view, float factor) {
    std::vector<float>& values = storage_.emplace_back(model::read_vector(view));
    for (float& value : values) value *= factor;
    view.dtype = model::Dtype::kF32;
    view.data = reinterpret_cast<const std::byte*>(values.data());
    view.stride = 1;
  }

 private:
  std::shared_ptr<const model::TensorFiles> mapping_;
  std::list<std::vector<float>> storage_;
};

}  // namespace moe::engine::testing
