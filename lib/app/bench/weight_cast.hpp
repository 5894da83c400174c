#pragma once

// The same model with its big matrices in another dtype, or rounded to integer codes.

#include <cstdint>
#include <optional>
#include <string>

#include "lib/app/bench/engine_setup.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/dtype.hpp"
#include "lib/model/quantize.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// Converts projections, feed-forward blocks, experts and head to `dtype` (F32, F16 or BF16, rounded
// to nearest even), dequantised where they are quantised; router, norms, biases and the embedding
// stay. Returns the copies, which must outlive the model's use. Throws Error(kUsage) against
// --max-memory and Error(kInput) against the machine when there is no memory for them,
// Error(kRuntime) when interrupted.
[[nodiscard]] AlignedBytes cast_weights(model::Dtype dtype, const EngineArgs& args,
                                        Progress& progress, const Interrupt& interrupt,
                                        model::BoundModel& model);

// What --quantize did.
struct Quantized {
  AlignedBytes storage;  // must outlive the model's use
  std::string label;     // one line for the report
  model::Rounding rounding;
  double relative_error = 0.0;  // root mean square error / root mean square weight, all matrices
  std::string worst_matrix;     // the one with the largest relative error
  double worst_error = 0.0;
};

// Rounds projections, feed-forward blocks and experts; router, norms, biases, embedding, head and
// the latent projections of MLA stay. Throws as cast_weights(), and Error(kUsage) for weights that
// are quantised already.
[[nodiscard]] Quantized quantize_weights(model::Rounding rounding, const EngineArgs& args,
                                         Progress& progress, const Interrupt& interrupt,
                                         model::BoundModel& model);

// The option --quantize none|int8|int4|int8-channel, and what it does to a model: nullopt for none.
void add_quantize_option(Options& options, EngineArgs& args);
[[nodiscard]] std::optional<Quantized> apply_quantize_option(const EngineArgs& args,
                                                             Progress& progress,
                                                             const Interrupt& interrupt,
                                                             model::BoundModel& model);
// Metrics and settings that say so. `quantized` may be null: weights as they are stored.
void report_quantization(const model::BoundModel& model, const Quantized* quantized,
                         report::Report& report);

}  // namespace moe::app
