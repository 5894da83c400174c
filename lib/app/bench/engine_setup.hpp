#pragma once

// From the options that every command with a model shares to a loaded engine.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/engine/engine.hpp"
#include "lib/engine/isa_choice.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// As given on the command line.
struct EngineArgs {
  std::int64_t num_threads = 0;  // 0: all that the process may use
  std::string isa = "auto";
  std::string activations = "auto";
  std::int64_t max_memory_bytes = 0;  // 0: what the machine has available
  std::int64_t chunk_tokens = 512;
  std::int64_t top_k = 0;          // 0: the model's own
  std::string quantize = "none";   // none, int8, int4, int8-channel
  std::string moe_path = "fused";  // fused, unfused, both
};

// --threads, --isa, --max-memory, --chunk-tokens.
void add_engine_options(Options& options, EngineArgs& args);
// --top-k-experts: another number of experts per token than the model's own.
void add_top_k_option(Options& options, const std::string& names, EngineArgs& args);
// --moe-path fused|unfused|both.
void add_moe_path_option(Options& options, EngineArgs& args);
// --activations auto|f32|bf16|int8.
void add_activation_option(Options& options, EngineArgs& args);

// Names of the kernel levels, lowest first.
[[nodiscard]] std::vector<std::string> isa_names();

// Resolved, but for the sizes that depend on the command.
struct EngineSetup {
  engine::EngineOptions options;
  std::string isa_reason;  // one line for the report
  std::string activations_reason;
  std::vector<engine::MeasuredCase> measured_levels;  // what the choice rests on; may be empty
};

// Throws Error(kUsage), Error(kUnavailable) or Error(kCorruptData).
[[nodiscard]] EngineSetup resolve_engine(const EngineArgs& args, const model::BoundModel& model);

// Says so where the numeric mode is looser than the others.
void add_activation_finding(const EngineSetup& setup, ReportSession& session);

// Table "kernel_choice": what was measured to choose the level; none when there was no choice.
void add_kernel_choice(const EngineSetup& setup, report::Report& report);

// What the matrices that do most of the work are packed as.
[[nodiscard]] kernels::WeightFormat main_weight_format(const model::BoundModel& model);

// Threads that the process may run at once: its affinity mask, cut by the quota of its control
// group.
[[nodiscard]] std::int32_t num_usable_threads();

// What the checkpoint's matrices are stored as, by bytes: "BF16", or "BF16, F32" when mixed.
[[nodiscard]] std::string weight_dtypes(const model::BoundModel& model);

// The bytes that may be used: --max-memory or what the machine has available; 0 when unknown.
[[nodiscard]] std::int64_t memory_budget(const engine::EngineOptions& options);

// Throws when the model with these options does not fit: Error(kUsage) against --max-memory,
// Error(kInput) against the machine. The message says how much is needed, how much is there, and
// what to change.
void check_fits(const model::BoundModel& model, const engine::EngineOptions& options);

}  // namespace moe::app
