#include "lib/app/skew/inspect_parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"

namespace moe::app {
namespace {

using routing::ExpertCounts;
using routing::SkewFigures;

// Capacity factors that are usual in training and the ones that reports of drops quote.
constexpr std::array<double, 8> kFactors = {1.0, 1.1, 1.25, 1.3, 1.5, 1.75, 2.0, 3.0};
constexpr double kAlarmRatio = 0.5;  // sigma over mu of the per-GPU load alarm

std::span<const std::int64_t> layer_of(const std::vector<std::int64_t>& total, std::int64_t layer,
                                       std::int64_t num_experts) {
  return std::span(total).subspan(static_cast<std::size_t>(layer * num_experts),
                                  static_cast<std::size_t>(num_experts));
}

std::int64_t number_of(const ExpertCounts& counts, std::int64_t layer_idx) {
  return counts.info.layers[static_cast<std::size_t>(layer_idx)];
}

// Mean and largest over layers of one figure; layers without it are left out.
struct OverLayers {
  double sum = 0.0;
  std::int64_t count = 0;
  std::optional<double> max;
  std::optional<double> min;

  void add(const std::optional<double>& value) {
    if (!value.has_value()) return;
    sum += *value;
    ++count;
    max = std::max(max.value_or(*value), *value);
    min = std::min(min.value_or(*value), *value);
  }
  [[nodiscard]] std::optional<double> mean() const {
    if (count == 0) return std::nullopt;
    return sum / static_cast<double>(count);
  }
};

void set_over_layers(report::Report& report, const std::string& stem, const OverLayers& figure,
                     const std::string& how) {
  const std::string reason = "no layer has this figure";
  set_metric(report, stem + "_mean", "1", figure.mean(), reason, how + "; mean over MoE layers");
  set_metric(report, stem + "_max", "1", figure.max, reason, how + "; largest over MoE layers");
  set_metric(report, stem + "_min", "1", figure.min, reason, how + "; smallest over MoE layers");
}

std::optional<double> ratio_of(double part, double all) {
  if (all <= 0.0) return std::nullopt;
  return part / all;
}

// -1: the input does not tell.
report::Cell step_cell(std::int64_t step) {
  if (step < 0) return {};
  return count_cell(step);
}

std::string window_label(const ExpertCounts& windows) {
  return windows.window_unit == routing::WindowUnit::kWhole
             ? "the whole input"
             : fmt::format("windows of {} {}", windows.window_length,
                           routing::window_unit_name(windows.window_unit));
}

}  // namespace

std::vector<double> gpu_loads(const ExpertCounts& counts, const GpuView& view,
                              std::int64_t layer_idx, std::span<const std::int64_t> of_layer) {
  if (!view.is_recorded) return routing::linear_gpu_loads(of_layer, view.num_gpus);
  const std::span<const std::int32_t> map =
      std::span(counts.info.physical_to_logical)
          .subspan(static_cast<std::size_t>(layer_idx * counts.info.num_slots),
                   static_cast<std::size_t>(counts.info.num_slots));
  return routing::placed_gpu_loads(of_layer, map, view.num_gpus);
}

void add_layer_skew(const ExpertCounts& counts, const std::vector<std::int64_t>& total,
                    const GpuView& view, report::Report& report) {
  report::Table table = make_table("Load of the experts by layer", {{"layer", "1"},
                                                                    {"assignments", "1"},
                                                                    {"idle_experts", "1"},
                                                                    {"max_over_mean", "1"},
                                                                    {"max_over_min", "1"},
                                                                    {"cv_population", "1"},
                                                                    {"gini", "1"},
                                                                    {"entropy_bits", "1"},
                                                                    {"gpu_balancedness", "1"},
                                                                    {"gpu_cv_population", "1"}});
  OverLayers max_over_mean;
  OverLayers max_over_min;
  OverLayers cv;
  OverLayers cv_sample;
  OverLayers gini;
  OverLayers entropy;
  OverLayers entropy_share;
  std::int64_t num_idle = 0;
  double worst_ratio = 0.0;
  for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
    const std::span<const std::int64_t> of_layer = layer_of(total, l, counts.num_experts());
    const SkewFigures skew = routing::skew_of(of_layer);
    SkewFigures gpu;
    if (view.num_gpus > 0) {
      gpu = routing::skew_of(std::span<const double>(gpu_loads(counts, view, l, of_layer)));
    }
    max_over_mean.add(skew.max_over_mean);
    max_over_min.add(skew.max_over_min);
    cv.add(skew.cv_population);
    cv_sample.add(skew.cv_sample);
    gini.add(skew.gini);
    entropy.add(skew.entropy_bits);
    entropy_share.add(skew.entropy_share);
    num_idle += skew.num_idle;
    const auto [least, most] = std::minmax_element(of_layer.begin(), of_layer.end());
    worst_ratio = std::max(worst_ratio, static_cast<double>(*most) /
                                            static_cast<double>(std::max<std::int64_t>(*least, 1)));
    table.rows.push_back({count_cell(number_of(counts, l)),
                          count_cell(static_cast<std::int64_t>(skew.total)),
                          count_cell(skew.num_idle), optional_cell(skew.max_over_mean),
                          optional_cell(skew.max_over_min), optional_cell(skew.cv_population),
                          optional_cell(skew.gini), optional_cell(skew.entropy_bits),
                          optional_cell(gpu.balancedness), optional_cell(gpu.cv_population)});
  }
  report.tables["layers"] = std::move(table);
  set_over_layers(report, "expert_max_over_mean", max_over_mean, "busiest expert over the mean");
  set_over_layers(report, "expert_max_over_min", max_over_min,
                  "busiest over least busy expert; layers with an idle expert have none");
  set_over_layers(report, "expert_cv_population", cv, "standard deviation over mean, divisor n");
  set_over_layers(report, "expert_cv_sample", cv_sample,
                  "standard deviation over mean, divisor n - 1");
  set_over_layers(report, "expert_gini", gini, "Gini coefficient of expert loads");
  set_over_layers(report, "expert_entropy_bits", entropy, "-sum p log2 p of expert shares");
  set_over_layers(report, "expert_entropy_share", entropy_share, "entropy over log2 of experts");
  set_metric(report, "idle_experts_count", "1", static_cast<double>(num_idle), "",
             "experts without an assignment, all MoE layers together");
  set_metric(report, "dropless_capacity_factor", "1", max_over_mean.max, "nothing was routed",
             "smallest capacity factor that drops nothing over the whole input, worst layer");
  set_metric(report, "expert_load_max_min_ratio", "1", worst_ratio, "",
             "busiest over least busy expert, worst MoE layer; an idle expert counts as one "
             "assignment, so that the ratio is a lower bound then");
}

void add_expert_tables(const ExpertCounts& counts, const std::vector<std::int64_t>& total,
                       report::Report& report) {
  report::Table table = make_table("Load of each expert", {{"layer", "1"},
                                                           {"expert", "1"},
                                                           {"assignments", "1"},
                                                           {"share", "1"},
                                                           {"load_over_mean", "1"}});
  table.is_detail = true;
  for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
    const std::span<const std::int64_t> of_layer = layer_of(total, l, counts.num_experts());
    const double sum = std::accumulate(of_layer.begin(), of_layer.end(), 0.0);
    for (std::int64_t e = 0; e < counts.num_experts(); ++e) {
      const std::int64_t count = of_layer[static_cast<std::size_t>(e)];
      const double share = sum > 0.0 ? static_cast<double>(count) / sum : 0.0;
      table.rows.push_back({count_cell(number_of(counts, l)), count_cell(e), count_cell(count),
                            share, share * static_cast<double>(counts.num_experts())});
    }
  }
  report.tables["experts"] = std::move(table);
  report.charts.push_back({"Load of each expert over the layer's mean",
                           report::ChartKind::kHeatmap,
                           "experts",
                           "expert",
                           {"layer", "load_over_mean"},
                           ""});
}

void add_gpu_tables(const ExpertCounts& counts, const std::vector<std::int64_t>& total,
                    const GpuView& view, report::Report& report) {
  const std::string placed =
      view.is_recorded ? "the recorded placement, an expert's load split evenly over its slots"
                       : "experts in order";
  report::Table gpus = make_table(
      "Load of each GPU, " + placed,
      {{"layer", "1"}, {"gpu", "1"}, {"node", "1"}, {"assignments", "1"}, {"load_over_mean", "1"}});
  gpus.is_detail = true;
  report::Table nodes =
      make_table("Load of each node", {{"node", "1"}, {"assignments", "1"}, {"share", "1"}});
  std::vector<std::vector<double>> loads;
  std::vector<double> of_node(static_cast<std::size_t>(view.num_nodes), 0.0);
  std::int64_t num_alarms = 0;
  OverLayers cv;
  for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
    loads.push_back(gpu_loads(counts, view, l, layer_of(total, l, counts.num_experts())));
    const SkewFigures skew = routing::skew_of(std::span<const double>(loads.back()));
    cv.add(skew.cv_population);
    if (skew.cv_population.value_or(0.0) > kAlarmRatio) ++num_alarms;
    const double mean = skew.total / static_cast<double>(view.num_gpus);
    for (std::int64_t g = 0; g < view.num_gpus; ++g) {
      const double load = loads.back()[static_cast<std::size_t>(g)];
      const std::int64_t node = routing::linear_gpu_of(g, view.num_gpus, view.num_nodes);
      of_node[static_cast<std::size_t>(node)] += load;
      gpus.rows.push_back({count_cell(number_of(counts, l)), count_cell(g), count_cell(node), load,
                           optional_cell(ratio_of(load, mean))});
    }
  }
  const double all = std::accumulate(of_node.begin(), of_node.end(), 0.0);
  for (std::size_t n = 0; n < of_node.size(); ++n) {
    nodes.rows.push_back({count_cell(static_cast<std::int64_t>(n)), of_node[n],
                          optional_cell(ratio_of(of_node[n], all))});
  }
  report.tables["gpus"] = std::move(gpus);
  report.tables["nodes"] = std::move(nodes);
  report.charts.push_back({"Load of each GPU over the layer's mean",
                           report::ChartKind::kHeatmap,
                           "gpus",
                           "gpu",
                           {"layer", "load_over_mean"},
                           ""});
  const routing::BalancednessFigures balance = routing::balancedness_of(loads);
  const std::string how = "mean over largest load of the GPUs in a layer, " + placed;
  const std::string reason = "nothing was routed";
  set_metric(report, "gpu_balancedness_mean", "1", balance.mean, reason,
             how + "; mean over layers");
  set_metric(report, "gpu_balancedness_worst", "1", balance.worst, reason, how + "; worst layer");
  set_metric(report, "gpu_balancedness_p10", "1", balance.p10, reason,
             how + "; 10th percentile over layers");
  set_metric(report, "gpu_balancedness_of_sums", "1", balance.of_sums, reason,
             "sum of the layers' means over sum of their largest loads, " + placed);
  set_metric(report, "placement_gpu_balancedness_ratio", "1", balance.mean, reason,
             how + "; mean over layers");
  set_over_layers(report, "gpu_cv_population", cv, "standard deviation over mean of GPU loads");
  set_metric(report, "gpu_alarm_layers_count", "1", static_cast<double>(num_alarms), "",
             "layers whose GPU loads have a standard deviation above half their mean, over the "
             "whole input");
  if (balance.worst_layer_idx >= 0) {
    report.settings["worst_layer"] = number_of(counts, balance.worst_layer_idx);
  }
}

void add_windows(const ExpertCounts& windows, const GpuView& view, std::int64_t top_k,
                 report::Report& report) {
  report::Table table =
      make_table("Over time, " + window_label(windows), {{"window", "1"},
                                                         {"first_step", "1"},
                                                         {"begin_s", "s"},
                                                         {"assignments", "1"},
                                                         {"expert_max_over_mean", "1"},
                                                         {"expert_cv_population", "1"},
                                                         {"gpu_balancedness", "1"},
                                                         {"gpu_cv_population", "1"}});
  OverLayers imbalance;
  OverLayers cv_sample;
  std::int64_t num_empty = 0;
  for (std::int64_t w = 0; w < windows.num_windows(); ++w) {
    const routing::Window& window = windows.windows[static_cast<std::size_t>(w)];
    OverLayers max_over_mean;
    OverLayers cv;
    OverLayers balancedness;
    OverLayers gpu_cv;
    double assignments = 0.0;
    for (std::int64_t l = 0; l < windows.num_layers(); ++l) {
      const SkewFigures skew = routing::skew_of(windows.at(w, l));
      assignments += skew.total;
      max_over_mean.add(skew.max_over_mean);
      cv.add(skew.cv_population);
      if (view.num_gpus == 0) continue;
      const SkewFigures gpu =
          routing::skew_of(std::span<const double>(gpu_loads(windows, view, l, windows.at(w, l))));
      balancedness.add(gpu.balancedness);
      gpu_cv.add(gpu.cv_population);
      imbalance.add(gpu.imbalance_ratio);
      cv_sample.add(gpu.cv_sample);
    }
    if (assignments == 0.0) ++num_empty;
    table.rows.push_back({count_cell(w), step_cell(window.first_step),
                          optional_cell(window.begin_s),
                          count_cell(static_cast<std::int64_t>(assignments)),
                          optional_cell(max_over_mean.mean()), optional_cell(cv.mean()),
                          optional_cell(balancedness.mean()), optional_cell(gpu_cv.mean())});
  }
  report.tables["windows"] = std::move(table);
  report.charts.push_back({"Skew over time",
                           report::ChartKind::kLine,
                           "windows",
                           "window",
                           {"expert_max_over_mean", "gpu_balancedness"},
                           ""});
  set_metric(report, "empty_windows_count", "1", static_cast<double>(num_empty), "",
             "windows without an assignment; they have no balancedness and are in no mean");
  if (view.num_gpus > 0) {
    set_metric(report, "gpu_imbalance_ratio_mean", "1", imbalance.mean(), "nothing was routed",
               "largest GPU load over the mean, minus 1, per layer and window, then averaged (" +
                   window_label(windows) + ")");
  }
  if (top_k > 0) add_drops(windows, top_k, report);
}

void add_drops(const ExpertCounts& windows, std::int64_t top_k, report::Report& report) {
  if (windows.window_unit == routing::WindowUnit::kWhole) return;
  report::Table table = make_table("Drops at a fixed capacity factor, " + window_label(windows),
                                   {{"capacity_factor", "1"},
                                    {"capacity_max", "1"},
                                    {"dropped", "1"},
                                    {"assignments", "1"},
                                    {"drop_rate", "1"},
                                    {"fill", "1"}});
  for (const double factor : kFactors) {
    std::int64_t dropped = 0;
    std::int64_t assignments = 0;
    std::int64_t slots = 0;
    std::int64_t largest = 0;
    for (std::int64_t w = 0; w < windows.num_windows(); ++w) {
      for (std::int64_t l = 0; l < windows.num_layers(); ++l) {
        const std::span<const std::int64_t> counts = windows.at(w, l);
        const std::int64_t routed = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        // Tokens of this layer: its assignments over top_k, which leaves out what it did not route.
        const std::int64_t capacity = routing::capacity_of(factor / static_cast<double>(top_k),
                                                           routed, top_k, windows.num_experts());
        const routing::DropFigures drops = routing::drops_at(counts, capacity);
        dropped += drops.num_dropped;
        assignments += drops.num_assignments;
        slots += drops.num_slots;
        largest = std::max(largest, capacity);
      }
    }
    if (assignments == 0) return;
    const auto all = static_cast<double>(assignments);
    table.rows.push_back({factor, count_cell(largest), count_cell(dropped), count_cell(assignments),
                          static_cast<double>(dropped) / all,
                          static_cast<double>(assignments - dropped) / static_cast<double>(slots)});
  }
  report.tables["drops"] = std::move(table);
}

void add_token_figures(const routing::TokenFigures& figures, const GpuView& view,
                       report::Report& report) {
  const std::string reason = "the input has too few tokens or layers";
  set_metric(report, "reuse_of_previous_token", "1", figures.reuse_of_previous_token, reason,
             "assignments to an expert that the token before used in the same layer, over all");
  if (view.num_gpus == 0) return;
  set_metric(report, "gpus_per_token_layer", "1", figures.gpus_per_token_layer, reason,
             "distinct GPUs that a token is sent to in one layer, experts in order");
  set_metric(report, "same_gpu_in_next_layer", "1", figures.same_gpu_in_next_layer, reason,
             "pairs of experts of a token in consecutive layers that share a GPU, over all pairs, "
             "experts in order");
  const auto gpus = static_cast<double>(view.num_gpus);
  set_metric(report, "cross_gpu_share_per_assignment", "1", (gpus - 1.0) / gpus, "",
             "assignments that leave the token's GPU when tokens start on all GPUs alike: "
             "(GPUs - 1) / GPUs, whatever the placement");
  if (figures.gpus_per_token_layer.has_value()) {
    set_metric(report, "gpu_copies_per_token_layer", "1",
               *figures.gpus_per_token_layer * (gpus - 1.0) / gpus, "",
               "copies of a token that leave its GPU when each destination gets one, tokens "
               "starting on all GPUs alike");
  }
  if (view.num_nodes < 2) return;
  const auto nodes = static_cast<double>(view.num_nodes);
  set_metric(report, "nodes_per_token_layer", "1", figures.nodes_per_token_layer, reason,
             "distinct nodes that a token is sent to in one layer, experts in order");
  set_metric(report, "cross_node_share_per_assignment", "1", (nodes - 1.0) / nodes, "",
             "assignments that leave the token's node: (nodes - 1) / nodes");
  if (figures.nodes_per_token_layer.has_value()) {
    set_metric(report, "node_copies_per_token_layer", "1",
               *figures.nodes_per_token_layer * (nodes - 1.0) / nodes, "",
               "copies of a token that leave its node when each destination node gets one");
  }
}

}  // namespace moe::app
