// Part 4: bytes by part, rank and stage.

#include <algorithm>

#include <fmt/format.h>

#include "lib/app/plan/figure_table.hpp"
#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/table_builder.hpp"

namespace moe::app::procurement {
namespace {

using report::Cell;

constexpr std::size_t kShownLayouts = 3;

std::int64_t part_bytes(const planner::RankFit& rank, std::initializer_list<model::Part> parts) {
  std::int64_t sum = 0;
  for (const model::Part part : parts) {
    sum += rank.weights.by_part[static_cast<std::size_t>(part)];
  }
  return sum;
}

void add_rows(const GpuResult& gpu, const planner::SizePlan& plan, report::Table& table) {
  using model::Part;
  for (std::size_t i = 0; i < plan.fit.stages.size(); ++i) {
    const planner::RankFit& rank = plan.fit.stages[i];
    const std::int64_t margin =
        gpu.size_case.fit.memory_bytes - rank.used_bytes - rank.kv_pool_bytes;
    const std::int64_t experts = part_bytes(rank, {Part::kRoutedExperts});
    const std::int64_t shared = part_bytes(rank, {Part::kSharedExperts, Part::kDense});
    const std::int64_t attention = part_bytes(rank, {Part::kAttention});
    const std::int64_t rest = rank.weights.worst_rank - experts - shared - attention;
    const std::int64_t other = rank.overhead.graphs.value + rank.overhead.communication.value +
                               rank.overhead.context.value + rank.fragmentation_bytes;
    const std::string label =
        fmt::format("{} {}{}", gpu.gpu.id, planner::describe(plan.layout),
                    plan.fit.stages.size() > 1 ? fmt::format(" stage {}", i) : std::string());
    table.rows.push_back(
        {label, count_cell(experts), count_cell(shared), count_cell(attention), count_cell(rest),
         count_cell(rank.overhead.activation.value), count_cell(rank.overhead.graphs.value),
         count_cell(rank.overhead.communication.value), count_cell(rank.overhead.context.value),
         count_cell(rank.fragmentation_bytes), count_cell(other), count_cell(rank.kv_pool_bytes),
         count_cell(rank.missing_bytes), count_cell(std::max<std::int64_t>(0, margin)),
         static_cast<double>(margin) / static_cast<double>(gpu.size_case.fit.memory_bytes),
         count_cell(rank.max_requests_worst), count_cell(rank.max_requests),
         count_cell(rank.max_requests_best),
         std::string(i == plan.fit.binding_stage ? "binding" : "")});
  }
}

}  // namespace

void add_fit(const SizeInputs&, const SizeResult& result, report::Report& report) {
  report::Table table = make_table(
      "4. Memory of the fullest rank, modelled (bytes by part; free is what the engine may not "
      "use)",
      {{"rank", ""},
       {"experts_bytes", "bytes"},
       {"shared_dense_bytes", "bytes"},
       {"attention_bytes", "bytes"},
       {"embedding_rest_bytes", "bytes"},
       {"activation_bytes", "bytes"},
       {"graphs_bytes", "bytes"},
       {"communication_bytes", "bytes"},
       {"context_bytes", "bytes"},
       {"fragmentation_bytes", "bytes"},
       {"other_overhead_bytes", "bytes"},
       {"kv_pool_bytes", "bytes"},
       {"missing_bytes", "bytes"},
       {"free_bytes", "bytes"},
       {"free_ratio", "1"},
       {"max_requests_low", "1"},
       {"max_requests", "1"},
       {"max_requests_high", "1"},
       {"note", ""}});
  report::Table all = make_table("4. All layouts tried", {{"gpu", ""},
                                                          {"layout", ""},
                                                          {"gpus_each", "1"},
                                                          {"problem", ""},
                                                          {"max_requests", "1"},
                                                          {"requests_per_s_at_slo", "requests/s"},
                                                          {"limited_by", ""},
                                                          {"deployments", "1"},
                                                          {"gpus", "1"},
                                                          {"gpus_bought", "1"},
                                                          {"headroom_ratio", "1"}});
  all.is_detail = true;
  for (const GpuResult& gpu : result.gpus) {
    std::size_t shown = 0;
    for (const planner::SizePlan& plan : gpu.plans) {
      if (!plan.fit.stages.empty() && shown < kShownLayouts) {
        add_rows(gpu, plan, table);
        ++shown;
      }
      const bool works = plan.works();
      all.rows.push_back(
          {gpu.gpu.id, planner::describe(plan.layout), count_cell(plan.layout.gpus()), plan.problem,
           count_cell(plan.fit.max_requests), works ? Cell(plan.capacity.requests_per_s) : Cell(),
           plan.capacity.limited_by, works ? count_cell(plan.deployments) : Cell(),
           works ? count_cell(plan.gpus) : Cell(), works ? count_cell(plan.gpus_bought) : Cell(),
           works ? Cell(plan.headroom_ratio) : Cell()});
    }
  }
  report.tables["part04_fit"] = table;
  report.tables["part04_layouts"] = all;
  report::Chart chart;
  chart.title = "Memory of the fullest rank by part";
  chart.kind = report::ChartKind::kStacked;
  chart.table = "part04_fit";
  chart.x = "rank";
  // Eight, as many as there are colours; other_overhead holds graphs, communication, context and
  // fragmentation together.
  chart.y = {"experts_bytes",    "shared_dense_bytes",   "attention_bytes", "embedding_rest_bytes",
             "activation_bytes", "other_overhead_bytes", "kv_pool_bytes",   "free_bytes"};
  if (!table.rows.empty()) report.charts.push_back(chart);
}

}  // namespace moe::app::procurement
