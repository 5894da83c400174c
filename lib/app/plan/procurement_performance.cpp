// Part 5: what clients see, what limits it, what it rests on.

#include <cmath>

#include <fmt/format.h>

#include "lib/app/plan/figure_table.hpp"
#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/planner/throughput_anchors.hpp"

namespace moe::app::procurement {
namespace {

using report::MetricKind;

// The published figure of a system that is most like this one, and how far the model is off on it.
std::string nearest_anchor(const SizeInputs& inputs, const GpuResult& gpu) {
  const std::filesystem::path path = inputs.scenarios_dir / "anchors" / "throughput.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return "no published figures at hand";
  const std::vector<planner::ThroughputAnchor> anchors =
      planner::parse_throughput_anchors(read_text(path), path.string());
  const planner::ThroughputAnchor* nearest = nullptr;
  int best = -1;
  for (const planner::ThroughputAnchor& anchor : anchors) {
    if (anchor.kind != planner::AnchorKind::kDecode) continue;
    const int likeness = (anchor.model == inputs.model.name ? 4 : 0) +
                         (anchor.gpu == gpu.gpu.id ? 2 : 0) +
                         (anchor.engine == inputs.scenario.engine ? 1 : 0);
    if (likeness > best) {
      best = likeness;
      nearest = &anchor;
    }
  }
  if (nearest == nullptr || best < 2) return "none for this model or GPU type";
  const std::filesystem::path config = inputs.scenarios_dir / "models" / (nearest->model + ".json");
  const planner::Accelerator& of = planner::find_accelerator(inputs.hardware.file, nearest->gpu);
  const planner::AnchorResult check = planner::check_anchor(
      *nearest, load_architecture(config, nearest->weights), of, inputs.measured);
  return fmt::format(
      "{} ({} on {}, {}): published {:.0f} tokens/s/GPU, this model {:.0f} ({:+.0f} %), band "
      "{:.0f} "
      "to {:.0f}",
      nearest->id, nearest->model, nearest->gpu, planner::describe(nearest->layout),
      nearest->tokens_per_s_per_gpu, check.predicted, 100.0 * check.error(), check.low, check.high);
}

void add_times(const GpuResult& gpu, FigureTable& table) {
  const planner::SizePlan& plan = gpu.best();
  const planner::ServingPoint& at = plan.at_peak;
  const MetricKind modelled = MetricKind::kModelled;
  const std::string when =
      fmt::format("at today's peak on {} x {}", plan.deployments, planner::describe(plan.layout));
  table.add("TTFT, mean", "ttft_s", modelled, "s", at.ttft_s, when,
            Band{at.ttft_low_s, at.ttft_high_s});
  table.add("TTFT, p50", "ttft_p50_s", modelled, "s", at.ttft_p50_s, when);
  table.add("TTFT, p99", "ttft_p99_s", modelled, "s", at.ttft_p99_s, when);
  table.add("of it waiting, mean", "ttft_wait_s", modelled, "s", at.wait_s,
            "behind other prompts, or for cache");
  table.add("TPOT, mean of a request", "tpot_s", modelled, "s", at.tpot_s,
            "band: full overlap to no overlap", Band{at.tpot_full_overlap_s, at.tpot_no_overlap_s});
  table.add("time of a request", "request_s", modelled, "s", at.request_s,
            "TTFT and the rest of the answer");
  table.add("output tokens a second and GPU", "output_tokens_per_s_per_gpu", modelled, "tokens/s",
            at.output_tokens_per_s_per_gpu, when);
  table.add("the most within the service level", "output_tokens_per_s_per_gpu_at_slo", modelled,
            "tokens/s", plan.capacity.point.output_tokens_per_s_per_gpu,
            fmt::format("limited by {}", plan.capacity.limited_by));
  table.add("requests a second of one deployment", "requests_per_s_at_slo", modelled, "requests/s",
            plan.capacity.requests_per_s, "just at the service level");
  table.add("sequences in a step on a rank", "batch_per_rank", modelled, "1", at.batch_per_rank,
            when);
  table.add("requests that the cache holds", "max_requests", modelled, "1",
            static_cast<double>(plan.fit.max_requests),
            "one deployment; band: overheads at their ends",
            Band{static_cast<double>(plan.fit.max_requests_worst),
                 static_cast<double>(plan.fit.max_requests_best)});
  table.add("share of time taking in prompts", "prefill_utilization_ratio", modelled, "1",
            at.prefill_utilization, when);
  table.add_text("limiting resource of a decode step",
                 std::string(planner::resource_name(at.limiting_resource)), "modelled", when);
}

void add_ground(const SizeInputs& inputs, const GpuResult& gpu, FigureTable& table) {
  const planner::SizePlan& plan = gpu.best();
  const planner::StepModel model(inputs.model.architecture, plan.layout, gpu.gpu,
                                 gpu.size_case.setup, inputs.measured);
  const planner::GroupError& error = model.held_out_error();
  if (error.num_rows > 0) {
    table.add("median error of TPOT", "tpot_model_error_ratio", MetricKind::kMeasured, "1",
              error.tpot_median,
              fmt::format("on {} measured rows that the fit has not seen ({})", error.num_rows,
                          inputs.measured.constants.source));
    table.add("median error of TTFT", "ttft_model_error_ratio", MetricKind::kMeasured, "1",
              error.ttft_median, "on the same rows");
  } else {
    table.add_text("calibration", "none for this GPU, engine and precision", "assumed",
                   "global defaults stand in");
  }
  table.add_text("nearest published figure", nearest_anchor(inputs, gpu), "measured",
                 "scenarios/anchors; moe-plan verify checks all of them");
  for (const std::string& line : plan.defaults) {
    table.add_text("stands in for a measurement", line, "assumed", "scenarios/measured");
  }
}

}  // namespace

void add_performance(const SizeInputs& inputs, const SizeResult& result, report::Report& report) {
  report::Table steps = make_table("5. Where a decode step goes, at the peak",
                                   {{"gpu", ""}, {"part", ""}, {"time_s", "s"}, {"share", "1"}});
  report::Table front = make_table("5. Throughput within a TPOT limit, best layout",
                                   {{"gpu", ""},
                                    {"tpot_limit_ms", "ms"},
                                    {"output_tokens_per_s_per_gpu", "tokens/s"},
                                    {"layout", ""}});
  for (const GpuResult& gpu : result.gpus) {
    if (!gpu.works) continue;
    FigureTable table(report, table_name("part05_performance", gpu),
                      title_of("5. Performance", gpu), name_part(gpu.gpu.id));
    add_times(gpu, table);
    add_ground(inputs, gpu, table);
    table.finish();
    const planner::StepTime& step = gpu.best().at_peak.decode_step;
    for (std::size_t i = 0; i < planner::kNumStepParts; ++i) {
      if (step.parts[i] <= 0.0) continue;
      steps.rows.push_back({gpu.gpu.id,
                            std::string(planner::step_part_name(static_cast<planner::StepPart>(i))),
                            step.parts[i], step.parts[i] / step.value_s});
    }
    for (const FrontPoint& point : gpu.front) {
      front.rows.push_back(
          {gpu.gpu.id, 1000.0 * point.tpot_limit_s, point.tokens_per_s_per_gpu, point.layout});
    }
  }
  if (steps.rows.empty()) return;
  report.tables["part05_step"] = steps;
  report.tables["part05_front"] = front;
  report::Chart chart;
  chart.title = "Output tokens per second and GPU that a TPOT limit leaves";
  chart.kind = report::ChartKind::kLine;
  chart.table = "part05_front";
  chart.x = "tpot_limit_ms";
  chart.y = {"output_tokens_per_s_per_gpu"};
  chart.group_by = "gpu";
  report.charts.push_back(chart);
}

}  // namespace moe::app::procurement
