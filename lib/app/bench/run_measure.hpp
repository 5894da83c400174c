#pragma once

// Runs the points of a plan and keeps what came out, raw.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/bench/point_figures.hpp"
#include "lib/app/bench/prompts.hpp"
#include "lib/app/bench/routing_recorder.hpp"
#include "lib/app/bench/run_config.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/engine/placement.hpp"
#include "lib/engine/roofline_sampler.hpp"
#include "lib/engine/run_batch.hpp"
#include "lib/engine/width_probe.hpp"
#include "lib/sysinfo/mappings.hpp"

namespace moe::app {

enum class PointStatus : std::uint8_t { kMeasured, kSkipped, kFailed, kNotRun };
[[nodiscard]] const char* point_status_name(PointStatus status);

struct PointOutcome {
  BenchPoint point;
  PointStatus status = PointStatus::kNotRun;
  std::string reason;  // one line: why it stopped, was skipped or failed
  std::vector<engine::RunBatchResult> repetitions;  // complete ones
  // Between the repetitions, one more than those; empty with --no-limits.
  std::vector<engine::RooflineSample> limits;
  stats::StopDecision stop;
  std::optional<PointFigures> figures;  // when measured
  engine::MemoryEstimate memory;
  bool has_identical_prompts = false;
  std::uint64_t output_hash = 0;
};

struct LoadOutcome {
  double load_s = 0.0;
  engine::MemoryEstimate memory;
  engine::WarmUpResult warm_up;
  std::string peak_name;  // the instruction of the roofline's peak; empty with --no-limits
  engine::PlacementOutcome placement;
  // Of packed weights and KV cache after the last point; nullopt when the system does not say.
  std::optional<sysinfo::MappingMemory> mappings;
};

struct RunOutcome {
  std::vector<PointOutcome> points;  // in the order of the plan
  std::vector<LoadOutcome> loads;    // one an engine group
  engine::WidthReference cores;      // what the probes saw
  bool is_interrupted = false;
};

// What measuring needs beside the plan.
struct RunTools {
  const Clock* clock = nullptr;
  Progress* progress = nullptr;
  const Interrupt* interrupt = nullptr;
  RoutingRecorder* recorder = nullptr;  // null: no trace
};

// The prompts of a batch and the requests that point into them.
struct Batch {
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<engine::BatchRequest> requests;
  bool has_identical = false;
};
[[nodiscard]] Batch make_batch(const BenchPoint& point, const PromptSource& source);

[[nodiscard]] RunOutcome run_points(const RunArgs& args, const RunPlan& plan,
                                    const model::BoundModel& model, const PromptSource& prompts,
                                    const RunTools& tools);

}  // namespace moe::app
