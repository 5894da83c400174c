#pragma once

// Measures one load after the other against one server.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/bench/serve_source.hpp"
#include "lib/app/bench/serve_target.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/progress.hpp"
#include "lib/client/load.hpp"
#include "lib/client/load_figures.hpp"
#include "lib/client/server_metrics.hpp"

namespace moe::app {

struct ServePointOutcome {
  ServePoint point;
  client::LoadResult result;
  client::LoadFigures figures;
  client::ClientVerdict verdict;
  bool is_in_process = false;  // a checkpoint here instead of a server
  bool meets_level = false;    // the share asked for kept the service level; false without one
  std::vector<client::ServerSnapshot> snapshots;  // times on the run's clock
  std::optional<client::ServerDelta> delta;
};

struct ServeOutcome {
  std::vector<ServePointOutcome> points;
  std::int64_t num_warmup = 0;
  bool is_interrupted = false;
  bool is_server_gone = false;
  // Of a search.
  bool has_knee = false;
  double knee_load = 0.0;
  bool is_knee_bounded = false;
};

class ServeMeter {
 public:
  // Warm-up prompts are never those of a measured request.
  static constexpr std::int64_t kFirstWarmup = std::int64_t{1} << 40;
  // Requests of the warm-up of a load.
  [[nodiscard]] static std::int64_t num_warmup(const LoadArgs& load, const ServePoint& point);

  // All must outlive this.
  ServeMeter(const ServeArgs& args, const ServeInputs& inputs, const ServeTarget& target,
             Progress& progress, const Interrupt& interrupt);

  // Warm-up, then the load. Adds to the outcome.
  const ServePointOutcome& measure(const ServePoint& point, ServeOutcome& outcome);
  // All points of the options, or the search for the knee. Stops early when the server is gone or
  // the run is interrupted.
  [[nodiscard]] ServeOutcome measure_all();

  // One round without warm-up; conversations go on where the last round ended.
  [[nodiscard]] client::LoadResult run_round(const ServePoint& point);
  void warm_up(const ServePoint& point, ServeOutcome& outcome);

 private:
  [[nodiscard]] client::LoadPlan base_plan() const;
  [[nodiscard]] client::LoadTools tools() const;
  void search_knee(const ServePoint& first, ServeOutcome& outcome);

  const ServeArgs& args_;
  const ServeInputs& inputs_;
  const ServeTarget& target_;
  Progress& progress_;
  const Interrupt& interrupt_;
  SteadyClock clock_;
  std::unique_ptr<client::RequestSource> source_;
  std::int64_t next_conversation_ = 0;
  std::int64_t next_warmup_;
};

}  // namespace moe::app
