#include "lib/planner/end_to_end.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/planner/measured_json.hpp"

namespace moe::planner {
namespace {

constexpr std::size_t kMaxRows = 1'000'000;

// Fields of one line; double quotes hold commas, "" is a quote.
std::vector<std::string> split_csv(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (is_quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// The columns of one row by name.
class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, std::vector<std::string> fields,
      std::string where)
      : columns_(columns), fields_(std::move(fields)), where_(std::move(where)) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    const auto it = columns_.find(name);
    return it == columns_.end() || it->second >= fields_.size() ? std::string()
                                                                : fields_[it->second];
  }
  // Empty when the field is empty.
  [[nodiscard]] std::optional<double> number(const std::string& name) const {
    const std::string field = text(name);
    if (field.empty()) return std::nullopt;
    const auto value = parse_number<double>(field);
    if (!value || *value < 0.0 || *value > 1e12) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: column {}: expected a number >= 0, found \"{}\"", where_, name,
                              printable(field)));
    }
    return value;
  }
  [[nodiscard]] std::int32_t count(const std::string& name) const {
    return static_cast<std::int32_t>(std::clamp(number(name).value_or(1.0), 1.0, 65536.0));
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  std::vector<std::string> fields_;
  std::string where_;
};

WorkerLayout read_layout(const Row& row, const std::string& prefix) {
  WorkerLayout layout;
  layout.num_workers = std::max(1.0, row.number(prefix + "workers").value_or(1.0));
  layout.tp = row.count(prefix + "tp");
  layout.pp = row.count(prefix + "pp");
  layout.dp = row.count(prefix + "dp");
  layout.ep = row.count(prefix + "moe_ep");
  const std::int32_t moe_tp = row.count(prefix + "moe_tp");
  // The source multiplies the two for deployments with tensor parallel attention and expert
  // parallel experts over the same GPUs: "tp4_ep4" in an id stands beside tp 16, moe_tp 4, moe_ep
  // 4, on machines of 8 GPUs.
  if (moe_tp == layout.ep && moe_tp > 1 && layout.tp == moe_tp * layout.ep && layout.dp == 1) {
    layout.tp = layout.ep;
  }
  // Experts cannot be spread over more ranks than there are.
  layout.ep = std::min(layout.ep, layout.tp * layout.dp);
  return layout;
}

// "b200_sxm" -> the id in hardware.json.
std::string hardware_id(const std::string& gpu) {
  static const std::map<std::string, std::string> other_names = {
      {"a100_sxm", "a100-80-sxm"},
      {"gb200", "gb200-nvl72"},
      {"gb200_sxm", "gb200-nvl72"},
      {"gb300", "gb300-nvl72"},
      {"rtx_pro_6000_server", "rtxpro6000"}};
  const auto it = other_names.find(gpu);
  if (it != other_names.end()) return it->second;
  std::string id = gpu;
  std::replace(id.begin(), id.end(), '_', '-');
  return id;
}

std::string missing_for_prediction(const OperatingPoint& point) {
  if (point.gpu.empty() || point.engine.empty() || point.model.empty()) {
    return "no GPU, engine or model";
  }
  if (point.precision.empty()) return "no precision";
  if (point.num_clients < 1.0) return "no concurrency";
  if (point.input_tokens < 1.0 || point.output_tokens < 1.0) return "no lengths";
  if (point.ttft_s <= 0.0 || point.tpot_s <= 0.0) return "no measured times";
  return {};
}

std::vector<std::string> count_reasons(const std::map<std::string, std::int64_t>& reasons) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [reason, count] : reasons) sorted.emplace_back(-count, reason);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> lines;
  for (const auto& [count, reason] : sorted) {
    lines.push_back(fmt::format("{} rows: {}", -count, reason));
  }
  return lines;
}

// Two releases with the same weights shapes are one model for the split: the source carries the
// same measurement under both names.
std::string family(const std::string& model) {
  return model == "deepseek-ai/DeepSeek-R1" ? "deepseek-ai/DeepSeek-V3" : model;
}

std::string layout_key(const WorkerLayout& layout) {
  return fmt::format("{}x{}x{}x{}", layout.tp, layout.pp, layout.dp, layout.ep);
}

}  // namespace

OperatingPoints parse_operating_points(std::string_view csv, const std::string& where) {
  OperatingPoints result;
  std::map<std::string, std::size_t> columns;
  std::map<std::string, std::int64_t> reasons;
  std::size_t line_number = 0;
  while (!csv.empty()) {
    const std::size_t end = csv.find('\n');
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    if (line_number > kMaxRows) {
      throw Error(ErrorCode::kInput, fmt::format("{}: more than {} lines", where, kMaxRows));
    }
    std::vector<std::string> fields = split_csv(line);
    if (columns.empty()) {
      for (std::size_t i = 0; i < fields.size(); ++i) columns[fields[i]] = i;
      for (const char* name : {"gpu", "engine", "model", "precision", "isl", "osl", "concurrency",
                               "tp", "ttft_ms", "tpot_ms"}) {
        if (!columns.contains(name)) {
          throw Error(ErrorCode::kInput,
                      fmt::format("{}: expected a header line with the column {}, found \"{}\"",
                                  where, name, printable(line)));
        }
      }
      continue;
    }
    const Row row(columns, std::move(fields), fmt::format("{}:{}", where, line_number));
    OperatingPoint point;
    point.id = row.text("id").empty() ? fmt::format("line {}", line_number) : row.text("id");
    point.gpu = hardware_id(row.text("gpu"));
    point.engine = row.text("engine");
    point.engine_version = row.text("engine_version");
    point.model = row.text("model");
    point.precision = row.text("precision");
    point.date = row.text("date");
    point.is_disaggregated = row.text("mode") == "disagg";
    point.input_tokens = row.number("isl").value_or(0.0);
    point.output_tokens = row.number("osl").value_or(0.0);
    point.num_clients = row.number("concurrency").value_or(0.0);
    point.ttft_s = row.number("ttft_ms").value_or(0.0) * 1e-3;
    point.tpot_s = row.number("tpot_ms").value_or(0.0) * 1e-3;
    point.decode = read_layout(row, point.is_disaggregated ? "d_" : "");
    point.prefill = point.is_disaggregated ? read_layout(row, "p_") : point.decode;
    std::string reason = row.text("note");
    if (!reason.empty()) {
      reason = "note: " + printable(reason);
    } else {
      reason = missing_for_prediction(point);
    }
    if (!reason.empty()) {
      ++reasons[reason];
      ++result.num_skipped;
      continue;
    }
    result.points.push_back(std::move(point));
  }
  if (columns.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a CSV table, found nothing", where));
  }
  result.skipped = count_reasons(reasons);
  return result;
}

std::string deployment_key(const OperatingPoint& point) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", point.gpu, point.engine, family(point.model),
                     point.precision, point.is_disaggregated ? "disagg" : "agg",
                     layout_key(point.decode), layout_key(point.prefill));
}

std::string point_key(const OperatingPoint& point) {
  return fmt::format("{}|{}|{}|{}|{}|{}", deployment_key(point), point.input_tokens,
                     point.output_tokens, point.num_clients, point.prefill.num_workers,
                     point.decode.num_workers);
}

bool is_held_out(const OperatingPoint& point, Split split) {
  const std::string key = split == Split::kPoints ? "points|" + point_key(point)
                                                  : "deployments|" + deployment_key(point);
  // The low bits of FNV-1a alone are weak: fold the high half in.
  const std::uint64_t hash = fnv1a64(key);
  return ((hash ^ (hash >> 32U)) & 3U) == 0U;
}

RowRules parse_row_rules(std::string_view json_text, const std::string& where) {
  const json::Json document = json::parse(json_text, where);
  RowRules rules;
  rules.length_ratio = number_at(document, "length_ratio", 0.1, 2.0, where);
  rules.memory_utilization = number_at(document, "memory_utilization", 0.1, 1.0, where);
  std::size_t index = 0;
  for (const json::Json& entry : array_at(document, "speculation", where)) {
    const std::string here = fmt::format("{}: speculation[{}]", where, index++);
    rules.speculation.push_back(
        {.engine = text_at(entry, "engine", here),
         .engine_version = text_at(entry, "engine_version", here),
         .date_from = text_or(entry, "date_from", "", here),
         .draft_tokens = number_at(entry, "draft_tokens", 0.0, 64.0, here)});
  }
  for (const json::Json& line : array_at(document, "assumptions", where)) {
    if (!line.is_string()) {
      throw Error(ErrorCode::kInput, where + ": expected \"assumptions\" to hold texts");
    }
    rules.assumptions.push_back(line.get<std::string>());
  }
  return rules;
}

std::vector<PointError> point_errors(const std::vector<PreparedPoint>& points, Split split) {
  std::vector<PointError> errors;
  errors.reserve(points.size());
  for (const PreparedPoint& point : points) {
    const ServingPoint predicted = point.predict();
    errors.push_back({.id = point.measured.id,
                      .gpu = point.measured.gpu,
                      .engine = point.measured.engine,
                      .model = point.measured.model,
                      .precision = point.measured.precision,
                      .is_disaggregated = point.measured.is_disaggregated,
                      .is_held_out = is_held_out(point.measured, split),
                      .tpot_measured_s = point.measured.tpot_s,
                      .tpot_predicted_s = predicted.tpot_s,
                      .ttft_measured_s = point.measured.ttft_s,
                      .ttft_predicted_s = predicted.ttft_s});
  }
  return errors;
}

GroupError summarize(const std::vector<PointError>& errors,
                     const std::function<bool(const PointError&)>& select) {
  std::vector<double> tpot;
  std::vector<double> ttft;
  for (const PointError& error : errors) {
    if (!select(error)) continue;
    tpot.push_back(std::abs(error.tpot_error()));
    ttft.push_back(std::abs(error.ttft_error()));
  }
  GroupError result;
  result.num_rows = static_cast<std::int64_t>(tpot.size());
  if (tpot.empty()) return result;
  // Linear interpolation between order statistics: errors of a fit, not samples of a measurement.
  const auto quantile = [](std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    const double position = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    const double fraction = position - static_cast<double>(below);
    return values[below] + fraction * (values[above] - values[below]);
  };
  result.tpot_median = quantile(tpot, 0.5);
  result.ttft_median = quantile(ttft, 0.5);
  result.tpot_p90 = quantile(tpot, 0.9);
  result.ttft_p90 = quantile(ttft, 0.9);
  return result;
}

}  // namespace moe::planner
