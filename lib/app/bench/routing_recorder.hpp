#pragma once

// Writes the routing of measured repetitions to a trace file.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/app/bench/point_figures.hpp"
#include "lib/base/clock.hpp"
#include "lib/engine/engine.hpp"
#include "lib/model/config.hpp"
#include "lib/routing/trace_writer.hpp"

namespace moe::app {

class RoutingRecorder final : public engine::RoutingObserver {
 public:
  // `clock` must outlive this. Throws Error(kRuntime) when the file cannot be made.
  RoutingRecorder(const std::string& file, const std::string& model_name,
                  const model::ModelConfig& config, std::int32_t top_k, const Clock& clock);

  // Before a repetition: makes room, so that nothing allocates while it runs.
  void begin_repetition(const BenchPoint& point);
  // After it: empties the memory to disk.
  void end_repetition();
  void commit();

  void on_routing(int layer, std::int64_t num_tokens, int top_k, const std::int32_t* ids,
                  const float* weights, const engine::SequenceId* sequences,
                  const std::int64_t* positions) override;

  [[nodiscard]] std::int64_t num_rows() const { return writer_.num_rows(); }

 private:
  void flush_rows(std::int64_t begin, std::int64_t end, const std::int32_t* ids,
                  const float* weights, const std::int64_t* positions, routing::Phase phase,
                  int layer);

  routing::TraceWriter writer_;
  const Clock* clock_;
  std::int32_t top_k_;
  std::int64_t num_moe_layers_;
  double begin_s_ = 0.0;
  std::int64_t prompt_tokens_ = 0;
  std::int32_t request_base_ = 0;  // requests of earlier repetitions
  std::int32_t num_requests_ = 0;  // of this repetition
  std::int32_t step_ = -1;
  int last_layer_ = -1;
  std::vector<std::int32_t> requests_;
};

}  // namespace moe::app
