// Parts 6 to 9: how many, power, money, what moves the result.

#include <cmath>

#include <fmt/format.h>

#include "lib/app/plan/figure_table.hpp"
#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/report/human.hpp"

namespace moe::app::procurement {
namespace {

using report::Cell;
using report::MetricKind;

void add_token_costs(const char* way, const std::optional<planner::TokenCost>& cost,
                     FigureTable& table) {
  if (!cost) return;
  const MetricKind kind = MetricKind::kModelled;
  const auto add = [&](const char* what, const char* key, double usd, const char* source) {
    table.add(fmt::format("a million {} tokens, {}", what, way),
              fmt::format("usd_per_million_{}_tokens_{}", key, way), kind, "USD", usd, source);
  };
  add("input", "input", cost->usd_per_million_input, "cost split by GPU time of prompts");
  add("output", "output", cost->usd_per_million_output, "cost split by GPU time of decoding");
  add("blended", "blended", cost->usd_per_million_blended, "over input and output together");
  add("output (all cost)", "output_all", cost->usd_per_million_output_if_all,
      "the whole cost charged to output");
}

void add_money_of(const SizeInputs& inputs, const GpuResult& gpu, report::Report& report) {
  FigureTable table(report, table_name("part08_money", gpu), title_of("8. Money", gpu),
                    name_part(gpu.gpu.id));
  const planner::CostPlan& cost = gpu.cost;
  if (!inputs.scenario.prices_source.empty()) {
    table.add_text("prices", "as given", "assumed", inputs.scenario.prices_source);
  }
  const MetricKind kind = MetricKind::kModelled;
  if (cost.rent_usd_per_year) {
    table.add("renting, a year", "rent_usd_per_year", kind, "USD", *cost.rent_usd_per_year,
              fmt::format("{:g} GPUs x 8760 h x {:g} USD", gpu.fleet.num_gpus,
                          *gpu.prices.rent_per_gpu_hour));
  }
  for (const planner::CostLine& line : cost.capex) {
    if (line.usd == 0.0) continue;
    table.add_text("capital: " + line.item, format_usd(line.usd), "assumed", "prices given");
  }
  if (cost.capex_usd) {
    table.add("capital", "capex_usd", kind, "USD", *cost.capex_usd, "sum of the lines above");
  }
  for (const planner::CostLine& line : cost.own_per_year) {
    if (line.usd == 0.0) continue;
    table.add_text("owning, a year: " + line.item, format_usd(line.usd), "modelled",
                   line.item == "energy" ? "part 7 times the price of a kWh" : "prices given");
  }
  if (cost.own_usd_per_year) {
    table.add("owning, a year", "own_usd_per_year", kind, "USD", *cost.own_usd_per_year,
              fmt::format("depreciation over {:g} years, interest and running costs",
                          gpu.prices.depreciation_years));
    table.add("owning, an hour of a GPU", "own_usd_per_gpu_hour", kind, "USD",
              *cost.own_usd_per_gpu_hour, "whether it is used or not");
  }
  add_token_costs("rented", gpu.rent_tokens, table);
  add_token_costs("owned", gpu.own_tokens, table);
  if (gpu.break_even.utilization_ratio) {
    table.add("break-even use", "break_even_utilization_ratio", kind, "1",
              *gpu.break_even.utilization_ratio,
              "share of the hours above which owning is cheaper than renting by the hour");
  }
  if (gpu.break_even.months) {
    table.add("break-even time", "break_even_months", kind, "months", *gpu.break_even.months,
              "until capital is paid back by the rent saved, at full rent");
  } else if (cost.own_usd_per_year && cost.rent_usd_per_year) {
    table.add_absent("break-even time", "break_even_months", kind, "months",
                     "never: running what is owned costs more than the rent");
  }
  std::string free;
  for (const auto* lines : {&cost.capex, &cost.own_per_year}) {
    for (const planner::CostLine& line : *lines) {
      if (line.usd == 0.0) free += (free.empty() ? "" : ", ") + line.item;
    }
  }
  if (!free.empty()) table.add_text("taken as free", free, "assumed", "no price was given");
  for (const std::string& line : cost.missing) {
    table.add_text("not given", line, "absent", "add it to \"prices\"");
  }
  table.finish();
}

// Published figures that any cost model has to reproduce, computed by this one.
void add_cost_check(report::Report& report) {
  // deepseek-ai/open-infra-index, day 6: a mean of 226.75 nodes of 8 GPUs at 2 USD an hour, 168
  // billion output tokens in that day.
  constexpr double kNodes = 226.75;
  constexpr double kGpusPerNode = 8.0;
  constexpr double kUsdPerGpuHour = 2.0;
  constexpr double kOutputTokens = 168e9;
  const double usd = planner::rent_usd_per_day(kNodes * kGpusPerNode, kUsdPerGpuHour);
  report::Table table =
      make_table("8. Check of the arithmetic",
                 {{"published", ""}, {"figure", ""}, {"computed", ""}, {"source", ""}});
  table.rows.push_back(
      {std::string("DeepSeek V3/R1, cost of a day"), std::string("87,072 USD"), format_usd(usd),
       std::string("226.75 nodes x 8 GPUs x 24 h x 2 USD, open-infra-index day 6")});
  table.rows.push_back({std::string("the same over its output tokens"), std::string("0.52 USD/M"),
                        format_usd(usd / (kOutputTokens / 1e6)),
                        std::string("168 billion output tokens, all cost charged to them")});
  report.tables["part08_check"] = table;
}

}  // namespace

void add_count(const SizeInputs& inputs, const SizeResult& result, report::Report& report) {
  const Scenario& s = inputs.scenario;
  for (const GpuResult& gpu : result.gpus) {
    if (!gpu.works) continue;
    const planner::SizePlan& p = gpu.best();
    FigureTable table(report, table_name("part06_count", gpu), title_of("6. How many", gpu),
                      name_part(gpu.gpu.id));
    const MetricKind kind = MetricKind::kModelled;
    const auto count = [&](const char* figure, const char* metric, double value,
                           const std::string& source) {
      table.add(figure, metric, kind, "1", value, source);
    };
    table.add_text("layout of a deployment", planner::describe(p.layout),
                   s.layout ? "given" : "modelled",
                   fmt::format("{} GPUs; best of {} layouts", p.layout.gpus(), gpu.plans.size()));
    table.add("demand planned for", "requests_per_s_planned", kind, "requests/s",
              p.requests_per_s_needed,
              fmt::format("peak of {:g} and {:g} % growth", inputs.demand.peak_requests_per_s,
                          100.0 * s.growth_ratio));
    table.add("a deployment carries", "requests_per_s_per_deployment", kind, "requests/s",
              p.planned_requests_per_s,
              fmt::format("{:g} % of {:.3g} at the limit", 100.0 * s.load_ratio,
                          p.capacity.requests_per_s));
    count("deployments before rounding", "deployments_exact", p.deployments_exact,
          "demand over what one carries");
    count("deployments for the load", "deployments_for_load",
          static_cast<double>(p.deployments_for_load), "rounded up");
    count("deployments", "deployments_count", static_cast<double>(p.deployments),
          s.num_gpus > 0 ? "the GPUs that were given"
                         : fmt::format("with {} spare {}", s.num_spare_domains, s.failure_domain));
    count("GPUs in them", "gpus_count", static_cast<double>(p.gpus), "deployments x GPUs of one");
    count("nodes", "nodes_count", static_cast<double>(p.nodes),
          fmt::format("of {} GPUs", gpu.gpu.gpus_per_node));
    count("GPUs in whole nodes", "gpus_bought_count", static_cast<double>(p.gpus_bought),
          "what is bought");
    count("racks", "racks_count", static_cast<double>(p.racks),
          fmt::format("{} nodes a rack", gpu.size_case.nodes_per_rack));
    table.add("headroom over today's peak", "headroom_ratio", kind, "1", p.headroom_ratio,
              "everything running, until the service level is just met");
    count("deployments lost with a failure", "deployments_lost_count",
          static_cast<double>(p.deployments_lost),
          fmt::format("one {} gone, or drained for maintenance", s.failure_domain));
    table.add("capacity then", "requests_per_s_after_failure", kind, "requests/s",
              p.capacity_after_failure_requests_per_s,
              p.slo_met_after_failure ? "carries the planned demand within the service level"
                                      : "does not carry the planned demand");
    table.finish();
  }
}

void add_power(const SizeResult& result, report::Report& report) {
  for (const GpuResult& gpu : result.gpus) {
    if (!gpu.works) continue;
    FigureTable table(report, table_name("part07_power", gpu), title_of("7. Power", gpu),
                      name_part(gpu.gpu.id));
    const MetricKind kind = MetricKind::kModelled;
    if (!gpu.power) {
      table.add_absent("rated power", "it_kw", kind, "kW",
                       "the hardware file has no TDP of this GPU");
      table.finish();
      continue;
    }
    const planner::PowerPlan& p = *gpu.power;
    table.add("TDP of a GPU", "gpu_tdp_w", MetricKind::kAssumed, "W", *gpu.gpu.tdp_w,
              "hardware file");
    table.add("a node, rated", "node_kw", kind, "kW", p.node_kw, "GPUs and overhead");
    table.add("a rack, rated", "rack_kw", kind, "kW", p.rack_kw,
              p.exceeds_rack_limit
                  ? "one node alone is above the limit of a rack"
                  : fmt::format("{} nodes a rack by power and height", p.nodes_per_rack));
    table.add("all nodes, rated", "it_kw", kind, "kW", p.it_kw, "what has to be provided");
    table.add("average with cooling", "facility_kw", kind, "kW", p.facility_kw,
              "average load times PUE");
    table.add("heat", "heat_btu_per_h", kind, "BTU/h", p.heat_btu_per_h, "of the rated power");
    table.add("energy of a year", "kwh_per_year", kind, "kWh", p.kwh_per_year, "average x 8760 h");
    table.add("energy of a million output tokens", "kwh_per_million_output_tokens", kind, "kWh",
              planner::kwh_per_million_tokens(p, gpu.tokens.output), "at the mean demand");
    table.finish();
  }
}

void add_money(const SizeInputs& inputs, const SizeResult& result, report::Report& report) {
  report::Table table = make_table("8. Cost a million tokens", {{"gpu", ""},
                                                                {"input_rented_usd", "USD"},
                                                                {"output_rented_usd", "USD"},
                                                                {"blended_rented_usd", "USD"},
                                                                {"input_owned_usd", "USD"},
                                                                {"output_owned_usd", "USD"},
                                                                {"blended_owned_usd", "USD"}});
  bool has_price = false;
  for (const GpuResult& gpu : result.gpus) {
    if (!gpu.works) continue;
    add_money_of(inputs, gpu, report);
    std::vector<Cell> row = {gpu.gpu.id};
    for (const auto& cost : {gpu.rent_tokens, gpu.own_tokens}) {
      has_price = has_price || cost.has_value();
      row.push_back(cost ? Cell(cost->usd_per_million_input) : Cell());
      row.push_back(cost ? Cell(cost->usd_per_million_output) : Cell());
      row.push_back(cost ? Cell(cost->usd_per_million_blended) : Cell());
    }
    table.rows.push_back(row);
  }
  add_cost_check(report);
  if (!has_price) return;
  report.tables["part08_tokens"] = table;
  report::Chart chart;
  chart.title = "Cost of a million tokens";
  chart.table = "part08_tokens";
  chart.x = "gpu";
  chart.y = {"output_rented_usd", "output_owned_usd", "input_rented_usd", "input_owned_usd"};
  report.charts.push_back(chart);
}

void add_sensitivity(const SizeResult& result, report::Report& report) {
  for (const GpuResult& gpu : result.gpus) {
    if (!gpu.works) continue;
    const bool is_money = gpu.sensitivity_unit == "USD";
    report::Table table =
        make_table(title_of(is_money ? "9. Sensitivity of the yearly cost, unrounded"
                                     : "9. Sensitivity of the number of GPUs, unrounded",
                            gpu),
                   {{"input", ""},
                    {"low", ""},
                    {"high", ""},
                    {"at_low", gpu.sensitivity_unit},
                    {"at_high", gpu.sensitivity_unit},
                    {"change_at_low_ratio", "1"},
                    {"change_at_high_ratio", "1"},
                    {"note", ""}});
    const auto change = [&](const std::optional<double>& value) {
      return value ? Cell(*value / gpu.sensitivity_base - 1.0) : Cell();
    };
    for (const planner::SensitivityRow& row : gpu.sensitivity) {
      std::string note;
      if (row.breaks) note = "the layout misses the service level at one end";
      if (row.name == "KV cache dtype" && row.low_result && row.high_result &&
          *row.low_result > *row.high_result) {
        note = "kernels on an FP8 cache were measured slower here, which outweighs the memory";
      }
      table.rows.push_back({row.name, row.low, row.high,
                            row.low_result ? Cell(*row.low_result) : Cell(),
                            row.high_result ? Cell(*row.high_result) : Cell(),
                            change(row.low_result), change(row.high_result), note});
    }
    const std::string name = table_name("part09_sensitivity", gpu);
    report.tables[name] = table;
    report::Chart chart;
    chart.title = fmt::format("What moves the {} of {}: change over the plan",
                              is_money ? "cost" : "number of GPUs", gpu.gpu.name);
    chart.kind = report::ChartKind::kTornado;
    chart.table = name;
    chart.x = "input";
    chart.y = {"change_at_low_ratio", "change_at_high_ratio"};
    report.charts.push_back(chart);
  }
}

}  // namespace moe::app::procurement
