#include "lib/app/a2a/a2a_verify.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"

namespace moe::app {
namespace {

constexpr double kA2aLimit = 0.05;
constexpr double kMoeLimit = 0.08;
// A series this far off its law has something in its times that no law of sizes explains.
constexpr double kNoisy = 0.08;

using Key = std::tuple<std::string, std::string, std::string>;  // GPU, library, operation

struct Errors {
  std::map<Key, std::vector<double>> collectives;
  std::map<Key, std::vector<double>> moe;
};

std::filesystem::path measured(const std::string& scenarios, const char* file) {
  return find_scenario(file, scenarios_dir(scenarios), "measured", "");
}

// Dispatch and combine are what a layer pays; preparation and notices are listed beside them.
bool counts(const std::string& operation) {
  return operation == "alltoall" || operation == "dispatch" || operation.starts_with("combine");
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void add_table(const char* name, const char* title,
               const std::map<Key, std::vector<double>>& errors, report::Report& report) {
  report::Table table = make_table(title, {{"gpu", ""},
                                           {"library", ""},
                                           {"operation", ""},
                                           {"points", "1"},
                                           {"error_p50", "1"},
                                           {"error_p90", "1"},
                                           {"error_max", "1"}});
  for (const auto& [key, values] : errors) {
    const topology::ErrorSummary summary = topology::summarise_errors(values);
    table.rows.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key),
                          count_cell(summary.count), summary.p50, summary.p90, summary.max});
  }
  if (!table.rows.empty()) report.tables[name] = std::move(table);
}

// Adds the metric and says whether it is within its limit; true when there is nothing to judge.
bool judge(const char* name, const std::map<Key, std::vector<double>>& errors, double limit,
           const char* how, report::Report& report) {
  std::vector<double> all;
  for (const auto& [key, values] : errors) {
    if (counts(std::get<2>(key))) append(all, values);
  }
  if (all.empty()) {
    report.metrics[name] =
        absent_metric(report::MetricKind::kModelled, "1", "no point of this kind", how);
    return true;
  }
  const topology::ErrorSummary summary = topology::summarise_errors(all);
  report.metrics[name] =
      value_metric(report::MetricKind::kModelled, "1", summary.p50,
                   fmt::format("{}; {} points, p90 {:.3f}, largest {:.3f}; limit {}", how,
                               summary.count, summary.p90, summary.max, limit));
  return summary.p50 <= limit;
}

void note_noisy(const std::vector<topology::MoeSeries>& moe, ReportSession& session) {
  for (const topology::MoeSeries& series : moe) {
    if (series.error.p50 <= kNoisy || series.error.count == 0) continue;
    session.add_finding(
        "data.noisy_series", report::Severity::kInfo,
        fmt::format("{} {} {} {} on {} ranks scatters: median error {:.0f} % on held-out points",
                    series.gpu, series.library, series.api, series.phase, series.num_ranks,
                    series.error.p50 * 100.0),
        "Its times hold more than bytes, host time for instance; do not plan with single points");
  }
}

void note_host_memory(const std::vector<topology::CollectiveSeries>& all,
                      const topology::LinkCatalog& catalog, ReportSession& session) {
  for (const topology::CollectiveSeries& series : all) {
    const topology::GpuType* gpu = catalog.find_gpu(series.gpu);
    if (series.op != "alltoall" || gpu == nullptr || series.max_bytes <= 0.0) continue;
    const double rate = series.max_bytes * topology::volume_factor(series.op, series.num_ranks) /
                        series.time_s(series.max_bytes);
    if (rate >= 0.25 * gpu->line_bytes_per_s) continue;
    session.add_finding(
        "data.far_below_link", report::Severity::kWarning,
        fmt::format(
            "{} on {} GPUs reaches {:.1f} GB/s of {:.0f} GB/s: its traffic goes through host "
            "memory, so the link's rate is no guide",
            series.gpu, series.num_ranks, rate / 1e9, gpu->line_bytes_per_s / 1e9),
        "Plan with the measured law; keep expert-parallel groups off such machines");
  }
}

// A larger message that took much less time: one of the two was disturbed.
void note_outliers(const std::vector<topology::CollectivePoint>& points, ReportSession& session) {
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::map<std::int64_t, double>>
      by_size;
  for (const topology::CollectivePoint& point : points) {
    if (point.op == "alltoall") {
      by_size[{point.gpu, point.dtype, point.num_ranks}].emplace(point.bytes, point.time_s);
    }
  }
  std::int64_t num_outliers = 0;
  std::string first;
  for (const auto& [key, times] : by_size) {
    double before = 0.0;
    std::int64_t bytes_before = 0;
    for (const auto& [bytes, time] : times) {
      if (before > 1.4 * time) {
        ++num_outliers;
        if (first.empty()) {
          first =
              fmt::format("{} on {} GPUs: {:.1f} us at {} bytes, {:.1f} us at {}", std::get<0>(key),
                          std::get<2>(key), before * 1e6, bytes_before, time * 1e6, bytes);
        }
      }
      before = time;
      bytes_before = bytes;
    }
  }
  if (num_outliers == 0) return;
  session.add_finding("data.outliers", report::Severity::kInfo,
                      fmt::format("{} measured all-to-alls took over 1.4 x as long as the next "
                                  "larger one; first: {}",
                                  num_outliers, first),
                      "The fit gives single points little weight");
}

// Public logs of nccl-tests, each with the smallest possible largest error.
void verify_logs(const std::string& scenarios, ReportSession& session) {
  const auto points = topology::read_collective_points(measured(scenarios, "collectives_logs.csv"));
  report::Table table = make_table("Public logs, size by size", {{"gpu", ""},
                                                                 {"library", ""},
                                                                 {"ranks", "1"},
                                                                 {"size_bytes", "bytes"},
                                                                 {"measured_s", "s"},
                                                                 {"alpha_beta_s", "s"},
                                                                 {"alpha_beta_error", "1"},
                                                                 {"model_s", "s"},
                                                                 {"model_error", "1"}});
  double worst_plain = 0.0;
  double worst = 0.0;
  for (const topology::CollectiveSeries& series : topology::fit_logs(points)) {
    for (const topology::CollectivePoint& point : points) {
      if (point.gpu != series.gpu || point.library != series.library) continue;
      const double volume =
          static_cast<double>(point.bytes) * topology::volume_factor(series.op, series.num_ranks);
      const double plain = series.plain.time_s(volume);
      const double model = series.law.time_s(volume);
      const double plain_error = plain / point.time_s - 1.0;
      const double error = model / point.time_s - 1.0;
      worst_plain = std::max(worst_plain, std::abs(plain_error));
      worst = std::max(worst, std::abs(error));
      table.rows.push_back({series.gpu, series.library, count_cell(series.num_ranks),
                            count_cell(point.bytes), point.time_s, plain, plain_error, model,
                            error});
    }
  }
  session.report().tables["logs"] = std::move(table);
  session.report().metrics["log_alpha_beta_error_max"] = value_metric(
      report::MetricKind::kModelled, "1", worst_plain,
      "largest relative error of alpha and beta on any size of the public logs, fitted "
      "to each log");
  session.report().metrics["log_model_error_max"] =
      value_metric(report::MetricKind::kModelled, "1", worst, "the same with the square-root term");
}

Errors refit(const std::string& scenarios, ReportSession& session) {
  Errors errors;
  const auto points =
      topology::read_collective_points(measured(scenarios, "collectives_points.csv"));
  const auto collectives = topology::fit_collectives(points);
  for (const topology::CollectiveSeries& series : collectives) {
    append(errors.collectives[{series.gpu, series.library, series.op}], series.held_out);
  }
  const auto moe = topology::fit_moe(
      topology::read_moe_points(measured(scenarios, "collectives_moe_points.csv")));
  for (const topology::MoeSeries& series : moe) {
    append(errors.moe[{series.gpu, series.library + " " + series.api, series.phase}],
           series.held_out);
  }
  note_host_memory(collectives, load_catalog(scenarios), session);
  note_outliers(points, session);
  note_noisy(moe, session);
  verify_logs(scenarios, session);
  return errors;
}

Errors compare(const std::string& scenarios, const std::string& path, ReportSession& session) {
  Errors errors;
  const topology::MeasuredLaws laws = load_laws(scenarios);
  const FileMap file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  std::int64_t num_unknown = 0;
  if (topology::is_moe_csv(text)) {
    for (const topology::MoePoint& point : topology::parse_moe_points(text, path)) {
      const auto series = std::find_if(laws.moe.begin(), laws.moe.end(), [&](const auto& s) {
        return s.gpu == point.gpu && s.library == point.library && s.version == point.version &&
               s.api == point.api && s.phase == point.phase && s.dtype == point.dtype &&
               s.num_ranks == point.num_ranks;
      });
      if (series == laws.moe.end()) {
        ++num_unknown;
        continue;
      }
      errors.moe[{point.gpu, point.library + " " + point.api, point.phase}].push_back(
          std::abs(series->time_s(point) / point.time_s - 1.0));
    }
  } else {
    for (const topology::CollectivePoint& point : topology::parse_collective_points(text, path)) {
      const auto series =
          std::find_if(laws.collectives.begin(), laws.collectives.end(), [&](const auto& s) {
            return s.gpu == point.gpu && s.library == point.library && s.op == point.op &&
                   s.num_ranks == point.num_ranks;
          });
      if (series == laws.collectives.end()) {
        ++num_unknown;
        continue;
      }
      errors.collectives[{point.gpu, point.library, point.op}].push_back(
          std::abs(series->time_s(static_cast<double>(point.bytes)) / point.time_s - 1.0));
    }
  }
  if (num_unknown > 0) {
    session.add_finding("model.no_series", report::Severity::kInfo,
                        fmt::format("{} points belong to no series of the constants", num_unknown),
                        "moe-a2a fit makes constants from your own points");
  }
  if (errors.collectives.empty() && errors.moe.empty()) {
    throw Error(ErrorCode::kNothingMeasured,
                fmt::format("{}: no point belongs to a series of the constants", path));
  }
  return errors;
}

}  // namespace

int verify_laws(const std::string& scenarios, const std::string& points, ReportSession& session) {
  const bool is_own = points.empty();
  const Errors errors = is_own ? refit(scenarios, session) : compare(scenarios, points, session);
  report::Report& report = session.report();
  const std::string how_fitted =
      is_own ? "median relative error on a quarter of the points, kept from that fit"
             : "median relative error of the constants on the points of the file";
  const bool is_a2a_good = judge("a2a_model_error_p50", errors.collectives, kA2aLimit,
                                 (how_fitted + ", all-to-all").c_str(), report);
  const bool is_moe_good = judge("moe_model_error_p50", errors.moe, kMoeLimit,
                                 (how_fitted + ", dispatch and combine").c_str(), report);
  add_table("collective_errors", "Collectives: errors on points kept from the fit",
            errors.collectives, report);
  add_table("moe_errors", "Dispatch and combine: errors on points kept from the fit", errors.moe,
            report);
  report.highlights = {"a2a_model_error_p50", "moe_model_error_p50"};
  return is_a2a_good && is_moe_good ? kExitOk : kExitCheckFailed;
}

}  // namespace moe::app
