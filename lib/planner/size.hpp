#pragma once

// From a service level and an arrival curve to a number of GPUs: what one deployment of a layout
// can take, how many deployments the busiest hour needs, what is left when a node or a rack is
// gone, and which layout needs the fewest GPUs.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/fit.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/planner/layout.hpp"
#include "lib/planner/serving.hpp"
#include "lib/planner/step_time.hpp"

namespace moe::planner {

// The traffic in the numbers that sizing needs.
struct Demand {
  RequestShape shape;  // means
  double mean_requests_per_s = 0.0;
  double peak_requests_per_s = 0.0;
  // Standard deviation over mean of the gaps between arrivals: 1 is Poisson.
  double gap_cv = 1.0;
  // Tokens of a request whose cache is planned for (a high percentile, not the mean).
  std::int64_t request_tokens = 4096;
};

enum class FailureDomain : std::uint8_t { kDeployment, kNode, kRack };
[[nodiscard]] const char* name_of(FailureDomain domain);

struct SizeRules {
  ServiceTarget target;
  // Share of the rate at which the service level is just met that is planned for.
  double load_ratio = 0.8;
  double growth_ratio = 0.0;  // demand added until the end of the plan: 0.3 is 30 %
  FailureDomain failure_domain = FailureDomain::kNode;
  std::int32_t num_spare_domains = 1;  // N + this many
  std::int64_t fixed_gpus = 0;         // the number is given (what do these carry?); 0: search
  std::int64_t max_gpus = 512;         // of one deployment
};

// Everything but the layout.
struct SizeCase {
  const model::Architecture* architecture = nullptr;
  const Accelerator* gpu = nullptr;
  const MeasuredTimes* measured = nullptr;
  FitOptions fit;
  StepSetup setup;
  Demand demand;
  SizeRules rules;
  std::int64_t nodes_per_rack = 4;
  // What every time is multiplied by: 1.1 is ten percent slower than the model says.
  double time_factor = 1.0;
};

struct SizePlan {
  Layout layout;
  FitResult fit;
  // Why this layout is out; empty when it is not.
  std::string problem;

  // One deployment.
  CapacityPoint capacity;               // just at the service level
  double planned_requests_per_s = 0.0;  // load_ratio of it
  ServingPoint at_peak;                 // at its share of today's peak
  double requests_per_s_needed = 0.0;   // of all deployments, growth included
  // Counts.
  double deployments_exact = 0.0;  // before rounding up
  std::int64_t deployments_for_load = 0;
  std::int64_t deployments = 0;  // with spares
  std::int64_t gpus = 0;         // in whole deployments
  std::int64_t nodes = 0;
  std::int64_t racks = 0;
  std::int64_t gpus_bought = 0;  // in whole nodes
  // With the failure domain gone.
  std::int64_t deployments_lost = 0;
  double capacity_after_failure_requests_per_s = 0.0;  // at the service level
  bool slo_met_after_failure = false;
  // Of today's peak, with everything running: 0.3 means that 30 % more would still be met.
  double headroom_ratio = 0.0;
  std::vector<std::string> defaults;  // what stands in for a measurement

  [[nodiscard]] bool works() const { return problem.empty(); }
};

// TP up to the scale-up domain, DP attention, EP over all ranks or none, PP over nodes; those that
// engines run and that do not exceed max_gpus. In the order of their GPUs.
[[nodiscard]] std::vector<Layout> size_layouts(const model::Architecture& architecture,
                                               const Accelerator& gpu, std::int64_t max_gpus);

// Never throws for a layout that does not work: the plan says why.
[[nodiscard]] SizePlan size_layout(const SizeCase& size_case, const Layout& layout);

// Requests a second of one deployment within each of these TPOT limits, TTFT limit unchanged; the
// layout must fit (its memory is not looked at again). For fronts of latency against throughput.
[[nodiscard]] std::vector<double> rates_within(const SizeCase& size_case, const SizePlan& plan,
                                               std::span<const double> tpot_limits_s);

// Every candidate; those that work first, by GPUs bought, then GPUs in use, then headroom.
[[nodiscard]] std::vector<SizePlan> size_all(const SizeCase& size_case);

// What arrivals that are burstier or more even than Poisson make of the wait of one of
// `num_deployments` that share them: the Allen-Cunneen factor (ca^2 + 1) / 2 with the variance of
// arrivals thinned at random, ca_i^2 = 1 + (ca^2 - 1) / n.
[[nodiscard]] double burst_wait_factor(double gap_cv, double num_deployments);

}  // namespace moe::planner
