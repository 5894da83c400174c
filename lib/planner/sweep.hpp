#pragma once

// Every layout that an engine can run, on every GPU type, at every batch size: which points are not
// beaten by another in both latency and throughput. Points are judged as they are made and only the
// front is kept, so memory does not grow with the space.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/planner/fit.hpp"
#include "lib/planner/serving.hpp"

namespace moe::planner {

struct SweepSpace {
  std::vector<const Accelerator*> gpus;
  std::int32_t max_gpus = 512;  // of one deployment
  std::int32_t max_tp = 64;
  std::int32_t max_pp = 16;
  // Sequences on every attention rank.
  std::vector<std::int32_t> batches;
  RequestShape shape;
  StepSetup setup;
  FitOptions fit;           // memory_bytes is taken from the GPU
  double max_ttft_s = 0.0;  // 0: no limit
  double max_tpot_s = 0.0;
};

struct SweepPoint {
  std::string gpu;
  Layout layout;
  std::int32_t batch = 0;
  double max_requests = 0.0;
  ServingPoint serving;
};

struct SweepResult {
  // Per GPU type, in the order of the space, then by TPOT: no other point of the same type has a
  // lower TPOT and more tokens per second and GPU.
  std::vector<SweepPoint> front;
  std::int64_t num_layouts = 0;      // legal for the model, over all GPU types
  std::int64_t num_points = 0;       // evaluated
  std::int64_t num_not_fitting = 0;  // (GPU, layout) pairs whose weights leave no room
  std::int64_t num_over_cache = 0;   // points with more requests than the cache holds
  std::int64_t num_over_slo = 0;
  std::map<std::string, std::int64_t> illegal;  // reason without its numbers -> count
};

// Powers of two for tp, dp, pp and ep, with ep dividing tp * dp; tp stays inside a scale-up domain
// or host.
[[nodiscard]] std::vector<Layout> candidate_layouts(const model::Architecture& architecture,
                                                    std::int32_t max_gpus, std::int32_t max_tp,
                                                    std::int32_t max_pp);

// `visit`, when set, sees every evaluated point that fits.
[[nodiscard]] SweepResult sweep(const model::Architecture& architecture, const SweepSpace& space,
                                const MeasuredTimes& measured,
                                const std::function<void(const SweepPoint&)>& visit = {});

// Keeps what is not dominated: lower TPOT or more tokens per second and GPU.
class ParetoFront {
 public:
  // True when the point entered the front.
  bool offer(double tpot_s, double tokens_per_s_per_gpu, const SweepPoint& point);
  [[nodiscard]] std::vector<SweepPoint> points() const;

 private:
  struct Entry {
    double throughput = 0.0;
    SweepPoint point;
  };
  std::map<double, Entry> by_tpot_;  // throughput grows with TPOT
};

}  // namespace moe::planner
