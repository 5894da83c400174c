// The metrics of moe-bench run that only the acceptance checklist reads.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/app/bench/run_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using report::MetricKind;

constexpr const char* kRatioHow =
    "total tokens/s at the configured batch / the best of the batches that meet the targets, at "
    "the first prompt and output length";

bool meets_targets(const PointFigures& figures, const RunArgs& args) {
  const auto within = [](const std::vector<double>& samples, double target_s) {
    return target_s <= 0.0 || samples.empty() || stats::median(samples) <= target_s;
  };
  return within(figures.ttft_s, args.target_ttft_s) && within(figures.itl_s, args.target_itl_s);
}

// One measured point a batch size, all at the lengths of the first.
std::vector<const PointFigures*> batch_sweep(const RunOutcome& outcome) {
  std::vector<const PointFigures*> sweep;
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const BenchPoint& first = outcome.points.front().point;
    if (point.point.prompt_tokens == first.prompt_tokens &&
        point.point.output_tokens == first.output_tokens) {
      sweep.push_back(&*point.figures);
    }
  }
  return sweep;
}

report::Metric throughput_ratio(const std::vector<const PointFigures*>& sweep,
                                const RunArgs& args) {
  const auto absent = [](const std::string& reason) {
    return absent_metric(MetricKind::kMeasured, "1", reason, kRatioHow);
  };
  const PointFigures* configured = nullptr;
  double best = 0.0;
  for (const PointFigures* figures : sweep) {
    if (figures->point.batch == args.configured_batch) configured = figures;
    if (meets_targets(*figures, args)) best = std::max(best, figures->total_tokens_per_s);
  }
  if (configured == nullptr) {
    return absent(fmt::format("batch {} was not measured", args.configured_batch));
  }
  if (best <= 0.0) return absent("no batch of the sweep meets the targets");
  const double own = meets_targets(*configured, args) ? configured->total_tokens_per_s : 0.0;
  return value_metric(MetricKind::kMeasured, "1", own / best, kRatioHow);
}

void add_batch_tuning(const RunOutcome& outcome, const RunArgs& args, report::Report& report) {
  if (args.configured_batch == 0) return;
  const std::vector<const PointFigures*> sweep = batch_sweep(outcome);
  report.metrics["batch_sweep_points_count"] =
      value_metric(MetricKind::kMeasured, "1", static_cast<double>(sweep.size()),
                   "batch sizes measured at the first prompt and output length");
  report.metrics["batch_throughput_ratio"] = throughput_ratio(sweep, args);
}

// Only against a limit that somebody set: an otherwise idle host is not meant to be filled.
void add_memory_use(const RunOutcome& outcome, const RunArgs& args, report::Report& report) {
  if (args.engine.max_memory_bytes == 0 || outcome.loads.empty()) return;
  const auto limit = static_cast<double>(args.engine.max_memory_bytes);
  std::int64_t most = 0;
  for (const LoadOutcome& load : outcome.loads) most = std::max(most, load.memory.total_bytes());
  report.metrics["memory_use_ratio"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(most) / limit,
                   "weights, KV cache and workspace of the largest engine / --max-memory");
  report.metrics["out_of_memory_count"] = value_metric(
      MetricKind::kMeasured, "1", 0.0, "allocations that failed; the run would have ended");
}

}  // namespace

void add_run_acceptance(const RunOutcome& outcome, const RunFacts& facts, report::Report& report) {
  add_batch_tuning(outcome, *facts.args, report);
  add_memory_use(outcome, *facts.args, report);
}

}  // namespace moe::app
