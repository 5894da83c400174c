// nccl-tests and nvbandwidth as JSON, with the quirks of what they write: numbers as padded texts,
// booleans as texts, "nan", null for a side that did not run.

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/topology/results.hpp"

namespace moe::topology {
namespace {

using json::Json;

std::optional<double> number(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return std::nullopt;
  const Json& value = object.at(key);
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  std::string text = value.get<std::string>();
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return parse_number<double>(text);
}

std::string text_of(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_string()) return "";
  return printable(object.at(key).get<std::string>());
}

void add_side(const Json& result, const char* side, bool is_in_place, BenchmarkResults& results) {
  if (!result.contains(side) || !result.at(side).is_object()) return;
  const Json& values = result.at(side);
  const std::optional<double> bytes = number(result, "size");
  std::optional<double> time = number(values, "time");
  if (!time) time = number(values, "cpu_time");
  if (!bytes || !time || *time <= 0.0) return;
  ResultRow row;
  row.bytes = *bytes;
  row.time_s = *time * 1e-6;
  row.busbw_bytes_per_s = number(values, "bus_bw").value_or(0.0) * 1e9;
  row.is_in_place = is_in_place;
  if (const auto wrong = number(values, "nwrong")) {
    row.num_wrong = static_cast<std::int64_t>(std::clamp(*wrong, 0.0, 1e15));
  }
  results.rows.push_back(row);
}

BenchmarkResults read_nccl_tests(const Json& document, const std::string& where,
                                 const ResultOptions& options) {
  BenchmarkResults results;
  results.tool = "nccl-tests JSON";
  results.size_semantics = "bytes that one rank sends in all";
  if (document.contains("args") && document.at("args").is_array()) {
    for (const Json& argument : document.at("args")) {
      if (!argument.is_string()) continue;
      const std::string name = argument.get<std::string>();
      const std::size_t perf = name.find("_perf");
      if (perf == std::string::npos) continue;
      const std::size_t slash = name.rfind('/', perf);
      results.operation =
          printable(name.substr(slash == std::string::npos ? 0 : slash + 1,
                                perf - (slash == std::string::npos ? 0 : slash + 1)));
      break;
    }
  }
  std::set<std::int64_t> ranks;
  std::set<std::string> hosts;
  const Json config = document.value("config", Json::object());
  if (config.is_object() && config.contains("devices") && config.at("devices").is_array()) {
    for (const Json& device : config.at("devices")) {
      if (const auto rank = number(device, "rank")) ranks.insert(static_cast<std::int64_t>(*rank));
      hosts.insert(text_of(device, "hostname"));
    }
  }
  // With several GPUs a process only the first of each is listed.
  const double gpus =
      number(config, "ngpus").value_or(1.0) * number(config, "nthreads").value_or(1.0);
  results.num_ranks = static_cast<std::int64_t>(ranks.size()) *
                      static_cast<std::int64_t>(std::clamp(gpus, 1.0, 1024.0));
  results.num_hosts = static_cast<std::int64_t>(hosts.size());
  if (options.num_ranks > 0) results.num_ranks = options.num_ranks;
  if (results.num_ranks == 0) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: the file does not list its devices; give --ranks", where));
  }
  const Json rows = document.value("results", Json::array());
  for (const Json& row : rows) {
    if (!row.is_object()) continue;
    add_side(row, "out_of_place", false, results);
    add_side(row, "in_place", true, results);
  }
  const double n = static_cast<double>(results.num_ranks);
  if (results.operation == "alltoall" || results.operation.empty()) {
    for (ResultRow& row : results.rows) {
      row.busbw_bytes_per_s = row.bytes / row.time_s * (n - 1.0) / n;
    }
  }
  const Json bounds = document.value("out_of_bounds", Json());
  if (bounds.is_object() && bounds.contains("okay")) {
    const Json& okay = bounds.at("okay");
    results.is_data_ok = okay.is_boolean() ? okay.get<bool>() : okay == Json("true");
  }
  results.is_complete = document.contains("end_time") && !document.at("end_time").is_null();
  if (!results.is_complete) {
    results.remarks.push_back({"result.no_end",
                               Weight::kWarning,
                               "the file has no end_time: the run was stopped",
                               "",
                               {},
                               0});
  }
  return results;
}

PairTest read_pair_test(const Json& test) {
  PairTest out;
  out.name = text_of(test, "name");
  out.status = text_of(test, "status");
  out.has_passed = out.status == "Passed";
  out.min_bytes_per_s = -1.0;
  const Json matrix = test.value("bandwidth_matrix", Json::array());
  if (!matrix.is_array()) return out;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    if (!matrix.at(i).is_array()) continue;
    for (std::size_t j = 0; j < matrix.at(i).size(); ++j) {
      // "N/A" stands on the diagonal.
      const Json cell = Json{{"v", matrix.at(i).at(j)}};
      const std::optional<double> rate = number(cell, "v");
      if (!rate) continue;
      out.max_bytes_per_s = std::max(out.max_bytes_per_s, *rate * 1e9);
      if (out.min_bytes_per_s < 0.0 || *rate * 1e9 < out.min_bytes_per_s) {
        out.min_bytes_per_s = *rate * 1e9;
        out.slowest = fmt::format("row {}, column {}", i, j);
      }
    }
  }
  out.min_bytes_per_s = std::max(out.min_bytes_per_s, 0.0);
  return out;
}

// A report of moe-a2a: rows of its table "results", by the names of the columns.
BenchmarkResults read_own_report(const Json& document, const std::string& where) {
  BenchmarkResults results;
  results.tool = "moe-a2a report";
  results.operation = "alltoall";
  results.size_semantics = "bytes that one rank sends in all";
  const Json metrics = document.value("metrics", Json::object());
  const Json ranks = metrics.is_object() ? metrics.value("num_ranks", Json()) : Json();
  results.num_ranks =
      static_cast<std::int64_t>(std::clamp(number(ranks, "value").value_or(0.0), 0.0, 1e9));
  const Json tables = document.value("tables", Json::object());
  const Json table = tables.is_object() ? tables.value("results", Json()) : Json();
  const bool is_table = table.is_object() && table.value("columns", Json()).is_array() &&
                        table.value("rows", Json()).is_array();
  if (!is_table || results.num_ranks < 1) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: a report of moe-a2a without a table of results or a number of "
                            "ranks; expected one of moe-a2a run or import",
                            where));
  }
  std::vector<std::string> names;
  for (const Json& column : table.at("columns")) names.push_back(text_of(column, "name"));
  const double n = static_cast<double>(results.num_ranks);
  for (const Json& cells : table.at("rows")) {
    if (!cells.is_array()) continue;
    Json row = Json::object();
    for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) {
      row[names[i]] = cells.at(i);
    }
    const std::optional<double> bytes = number(row, "size_bytes");
    const std::optional<double> busbw = number(row, "busbw_bytes_per_s");
    if (!bytes || !busbw || *bytes <= 0.0 || *busbw <= 0.0) continue;
    ResultRow out;
    out.bytes = *bytes;
    out.busbw_bytes_per_s = *busbw;
    out.time_s = number(row, "time_s").value_or(*bytes * (n - 1.0) / n / *busbw);
    out.is_in_place = row.value("in_place", Json()) == Json(true);
    if (const auto wrong = number(row, "wrong_elements")) {
      out.num_wrong = static_cast<std::int64_t>(std::clamp(*wrong, 0.0, 1e15));
    }
    results.rows.push_back(out);
  }
  return results;
}

}  // namespace

BenchmarkResults read_results_json(std::string_view text, const std::string& where,
                                   const ResultOptions& options) {
  const Json document = json::parse(text, where);
  if (document.is_object() && document.contains("nvbandwidth")) {
    BenchmarkResults results;
    results.tool = "nvbandwidth JSON";
    results.operation = "copies between pairs";
    results.size_semantics = "not an all-to-all";
    const Json& body = document.at("nvbandwidth");
    const Json tests = body.is_object() ? body.value("testcases", Json::array()) : Json::array();
    for (const Json& test : tests) {
      if (test.is_object()) results.pair_tests.push_back(read_pair_test(test));
    }
    if (results.pair_tests.empty()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: no testcases in the file", where));
    }
    return results;
  }
  const bool is_own = document.is_object() && document.contains("tool") &&
                      text_of(document.at("tool"), "name") == "moe-a2a";
  if (is_own) return read_own_report(document, where);
  if (!document.is_object() || !document.contains("results")) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected JSON of nccl-tests (\"results\"), of nvbandwidth, or a "
                            "report of moe-a2a",
                            where));
  }
  return read_nccl_tests(document, where, options);
}

}  // namespace moe::topology
