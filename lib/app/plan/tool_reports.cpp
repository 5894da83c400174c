#include "lib/app/plan/tool_reports.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"

namespace moe::app {
namespace {

void require_tool(const report::Report& report, const std::string& where, const char* tool) {
  const std::string name = report.tool.value("name", std::string());
  if (name != tool) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a report of {}, found one of {}", where, tool, name));
  }
  if (!report.validity.valid) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: the run was not valid, so a plan cannot rest on it", where));
  }
}

const report::Metric* value_of(const report::Report& report, const char* name) {
  const auto found = report.metrics.find(name);
  return found != report.metrics.end() && found->second.value ? &found->second : nullptr;
}

std::optional<std::size_t> column(const report::Table& table, const char* name) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == name) return i;
  }
  return std::nullopt;
}

// Shares of the selections, most popular first; empty when the table has not the columns.
std::vector<double> popularity_of(const report::Table& table, const char* count_column,
                                  const std::string& where) {
  const auto expert = column(table, kExpertColumn);
  const auto tokens = column(table, count_column);
  const auto layer = column(table, kLayerColumn);
  if (!expert || !tokens) return {};
  std::map<double, std::vector<double>> layers;
  for (const auto& row : table.rows) {
    const auto count = report::number_of(row[*tokens]);
    const double of = layer ? report::number_of(row[*layer]).value_or(0.0) : 0.0;
    if (!count || *count < 0.0) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: column {}: expected counts of 0 or more", where, count_column));
    }
    layers[of].push_back(*count);
  }
  std::vector<double> mean;
  for (auto& [of, counts] : layers) {
    double sum = 0.0;
    for (const double count : counts) sum += count;
    if (sum <= 0.0) continue;  // a layer that routed nothing says nothing
    std::sort(counts.begin(), counts.end(), std::greater<>());
    if (mean.empty()) mean.resize(counts.size(), 0.0);
    if (mean.size() != counts.size()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: layers with {} and with {} experts", where,
                                                 mean.size(), counts.size()));
    }
    for (std::size_t i = 0; i < counts.size(); ++i) mean[i] += counts[i] / sum;
  }
  return mean;
}

}  // namespace

std::vector<double> deal_popularity(const std::vector<double>& sorted) {
  std::size_t size = 1;
  while (size < sorted.size()) size *= 2;
  std::vector<double> dealt;
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t reversed = 0;
    for (std::size_t bit = 1, mirror = size / 2; bit < size; bit *= 2, mirror /= 2) {
      if ((i & bit) != 0) reversed |= mirror;
    }
    if (reversed < sorted.size()) dealt.push_back(sorted[reversed]);
  }
  return dealt;
}

std::vector<double> popularity_from_report(const report::Report& report, const std::string& where) {
  const bool is_bench = report.tool.value("name", std::string()) == "moe-bench";
  require_tool(report, where, is_bench ? "moe-bench" : "moe-skew");
  const char* name = is_bench ? kBenchTable : kSkewTable;
  const auto table = report.tables.find(name);
  std::vector<double> sorted;
  if (table != report.tables.end()) {
    sorted = popularity_of(table->second, is_bench ? kBenchCountColumn : kSkewCountColumn, where);
  }
  if (sorted.empty()) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: holds no table {} with selections of experts; moe-skew inspect and "
                    "moe-bench run write one",
                    where, name));
  }
  return deal_popularity(sorted);
}

std::int64_t num_experts_of(const model::Architecture& architecture) {
  std::int64_t most = 0;
  for (const model::LayerSpec& layer : architecture.layers) {
    most = std::max<std::int64_t>(most, layer.ffn.num_experts);
  }
  return most;
}

void require_popularity_of(const model::Architecture& architecture,
                           const std::vector<double>& popularity, const std::string& where) {
  const std::int64_t expected = num_experts_of(architecture);
  if (static_cast<std::int64_t>(popularity.size()) == expected) return;
  throw Error(ErrorCode::kInput,
              fmt::format("{}: expected the popularity of {} experts, found {}; the report must be "
                          "of this model",
                          where, expected, popularity.size()));
}

SkewEvidence skew_from_report(const report::Report& report, const std::string& where) {
  require_tool(report, where, "moe-skew");
  SkewEvidence evidence;
  if (report.tables.contains(kSkewTable)) {
    evidence.skew.popularity = popularity_from_report(report, where);
    evidence.notes.push_back(
        fmt::format("popularity of {} experts from {}", evidence.skew.popularity.size(), where));
  }
  if (const report::Metric* balancedness = value_of(report, kSkewBalancedness)) {
    if (!(*balancedness->value > 0.0 && *balancedness->value <= 1.0)) {
      throw Error(ErrorCode::kInput, fmt::format("{}: {} is {}, expected above 0 and up to 1",
                                                 where, kSkewBalancedness, *balancedness->value));
    }
    evidence.skew.rank_max_over_mean = 1.0 / *balancedness->value;
    evidence.notes.push_back(fmt::format("fullest rank {:.3f} times the mean ({} in {})",
                                         evidence.skew.rank_max_over_mean, kSkewBalancedness,
                                         where));
  }
  if (evidence.notes.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: holds neither the table {} nor the metric {}",
                                               where, kSkewTable, kSkewBalancedness));
  }
  return evidence;
}

SkewEvidence read_skew_report(const std::string& path) {
  return skew_from_report(report::read_report(path), path);
}

LinkEvidence links_from_report(const report::Report& report, const std::string& where) {
  require_tool(report, where, "moe-a2a");
  const report::Metric* rate = value_of(report, kA2aBusBandwidth);
  if (rate == nullptr || !(*rate->value > 0.0)) {
    throw Error(ErrorCode::kInput, fmt::format("{}: holds no {} above 0", where, kA2aBusBandwidth));
  }
  LinkEvidence links;
  links.bus_bytes_per_s = *rate->value;
  links.kind = rate->kind;
  const report::Metric* nodes = value_of(report, kA2aNodes);
  links.is_between_nodes = nodes != nullptr && *nodes->value > 1.0;
  links.note = fmt::format(
      "{} {} {} from {}", links.is_between_nodes ? "between nodes" : "in a node",
      report::human_value(links.bus_bytes_per_s, "bytes/s"), report::name_of(links.kind), where);
  return links;
}

LinkEvidence read_a2a_report(const std::string& path) {
  return links_from_report(report::read_report(path), path);
}

void apply(const LinkEvidence& links, planner::Accelerator& gpu, planner::ScaleOut& network) {
  if (links.is_between_nodes) {
    network.bytes_per_s = links.bus_bytes_per_s;
    network.efficiency = 1.0;  // what was measured has its losses in it
    network.is_assumed = links.kind == report::MetricKind::kAssumed;
  } else {
    gpu.scale_up_bytes_per_s = links.bus_bytes_per_s;
    gpu.peer_bytes_per_s = std::min(gpu.peer_bytes_per_s, links.bus_bytes_per_s);
  }
}

}  // namespace moe::app
