// From measured points to constants.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/stats/midpoint_median.hpp"
#include "lib/topology/time_laws.hpp"

namespace moe::topology {
namespace {

constexpr std::size_t kMinPoints = 3;

constexpr std::array kMoeTerms = {"call",        "selection_bytes",      "rank_bytes",
                                  "tokens",      "sqrt_selection_bytes", "sqrt_rank_bytes",
                                  "sqrt_tokens", "selections",           "elements",
                                  "experts"};
constexpr std::array kSmTerms = {"selection_bytes_per_sm",
                                 "rank_bytes_per_sm",
                                 "sqrt_rank_bytes_per_sm",
                                 "selections_per_sm",
                                 "elements_per_sm",
                                 "inverse_sms",
                                 "sms"};

using CollectiveKey = std::tuple<std::string, std::string, std::string, std::string, std::int64_t>;
using Points = std::vector<const CollectivePoint*>;
using MoeKey = std::tuple<std::string, std::string, std::string, std::string, std::string,
                          std::string, std::int64_t>;
using MoePoints = std::vector<const MoePoint*>;

std::map<CollectiveKey, Points> group_points(const std::vector<CollectivePoint>& points) {
  std::map<CollectiveKey, Points> groups;
  for (const CollectivePoint& point : points) {
    groups[{point.gpu, point.library, point.version, point.op, point.num_ranks}].push_back(&point);
  }
  return groups;
}

SizeLaw fit_size_law(const std::vector<double>& volumes, const std::vector<double>& times,
                     bool has_root) {
  Design design;
  design.num_columns = has_root ? 3 : 2;
  for (const double volume : volumes) {
    design.values.push_back(1.0);
    design.values.push_back(volume);
    if (has_root) design.values.push_back(std::sqrt(volume));
  }
  const std::vector<double> x = fit_relative(design, times);
  return {x[0], x[1], has_root ? x[2] : 0.0};
}

// A size that lies far off both of its neighbours was disturbed when it was measured: times do not
// jump up and come back.
void level_spikes(std::vector<Knot>& knots) {
  constexpr double kSpike = 1.3;
  const std::vector<Knot> measured = knots;
  for (std::size_t i = 1; i + 1 < knots.size(); ++i) {
    const double before = measured[i - 1].ratio;
    const double after = measured[i + 1].ratio;
    const bool is_spike = measured[i].ratio > kSpike * std::max(before, after) ||
                          measured[i].ratio * kSpike < std::min(before, after);
    if (is_spike) knots[i].ratio = std::sqrt(before * after);
  }
}

std::vector<Knot> fit_knots(const CollectiveSeries& series, const Points& points) {
  std::map<std::int64_t, std::vector<double>> ratios;
  for (const CollectivePoint* point : points) {
    const double volume =
        static_cast<double>(point->bytes) * volume_factor(series.op, series.num_ranks);
    ratios[point->bytes].push_back(std::log(point->time_s / series.law.time_s(volume)));
  }
  std::vector<Knot> knots;
  for (auto& [bytes, logs] : ratios) {
    knots.push_back(
        {static_cast<double>(bytes), std::exp(stats::midpoint_median(std::move(logs)))});
  }
  level_spikes(knots);
  return knots;
}

// A size is kept from the fit with all its element types, so that no twin gives it away.
void add_held_out_errors(const Points& points, CollectiveSeries& series) {
  Points fitted;
  Points held;
  for (const CollectivePoint* point : points) {
    const std::string key = fmt::format("{}|{}|{}|{}|{}", point->gpu, point->library, point->op,
                                        point->num_ranks, point->bytes);
    (is_held_out(key) ? held : fitted).push_back(point);
  }
  if (fitted.size() < kMinPoints) return;
  const CollectiveSeries other = fit_series(fitted);
  std::vector<double> plain;
  std::vector<double> law;
  std::vector<double> whole;
  for (const CollectivePoint* point : held) {
    const double bytes = static_cast<double>(point->bytes);
    const double volume = bytes * volume_factor(other.op, other.num_ranks);
    plain.push_back(std::abs(other.plain.time_s(volume) / point->time_s - 1.0));
    law.push_back(std::abs(other.law.time_s(volume) / point->time_s - 1.0));
    whole.push_back(std::abs(other.time_s(bytes) / point->time_s - 1.0));
  }
  series.plain_error = summarise_errors(std::move(plain));
  series.law_error = summarise_errors(std::move(law));
  series.error = summarise_errors(whole);
  series.held_out = std::move(whole);
}

std::vector<std::string> terms_for(const MoePoints& points) {
  std::set<std::int64_t> budgets;
  for (const MoePoint* point : points) budgets.insert(point->num_sms);
  std::vector<std::string> terms(kMoeTerms.begin(), kMoeTerms.end());
  if (budgets.size() > 1) terms.insert(terms.end(), kSmTerms.begin(), kSmTerms.end());
  return terms;
}

MoeSeries fit_moe_series(const MoePoints& points) {
  const MoePoint& first = *points.front();
  MoeSeries series;
  series.gpu = first.gpu;
  series.library = first.library;
  series.version = first.version;
  series.api = first.api;
  series.phase = first.phase;
  series.dtype = first.dtype;
  series.num_ranks = first.num_ranks;
  series.num_nodes = first.num_nodes;
  series.num_points = static_cast<std::int64_t>(points.size());
  const std::vector<std::string> names = terms_for(points);
  Design design;
  design.num_columns = names.size();
  std::vector<double> times;
  std::map<std::int64_t, std::int64_t> budgets;
  for (const MoePoint* point : points) {
    for (const std::string& name : names) design.values.push_back(moe_term(name, *point));
    times.push_back(point->time_s);
    ++budgets[point->num_sms];
  }
  const std::vector<double> x = fit_relative(design, times);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (x[i] > 0.0) series.terms.emplace_back(names[i], x[i]);
  }
  series.default_sms = std::max_element(budgets.begin(), budgets.end(), [](auto& a, auto& b) {
                         return a.second < b.second;
                       })->first;
  return series;
}

void add_held_out_errors(const MoePoints& points, MoeSeries& series) {
  MoePoints fitted;
  MoePoints held;
  for (const MoePoint* point : points) {
    const std::string key = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", point->gpu,
                                        point->library, point->version, point->api, point->phase,
                                        point->dtype, point->num_ranks, point->hidden, point->top_k,
                                        point->num_experts, point->tokens_per_rank, point->num_sms);
    (is_held_out(key) ? held : fitted).push_back(point);
  }
  if (fitted.size() < kMinPoints) return;
  const MoeSeries other = fit_moe_series(fitted);
  std::vector<double> errors;
  for (const MoePoint* point : held) {
    errors.push_back(std::abs(other.time_s(*point) / point->time_s - 1.0));
  }
  series.error = summarise_errors(errors);
  series.held_out = std::move(errors);
}

}  // namespace

CollectiveSeries fit_series(const Points& points) {
  MOE_CHECK(points.size() >= kMinPoints);
  const CollectivePoint& first = *points.front();
  CollectiveSeries series;
  series.gpu = first.gpu;
  series.library = first.library;
  series.version = first.version;
  series.op = first.op;
  series.num_ranks = first.num_ranks;
  series.num_points = static_cast<std::int64_t>(points.size());
  std::vector<double> volumes;
  std::vector<double> times;
  for (const CollectivePoint* point : points) {
    volumes.push_back(static_cast<double>(point->bytes) *
                      volume_factor(series.op, series.num_ranks));
    times.push_back(point->time_s);
    series.max_bytes = std::max(series.max_bytes, static_cast<double>(point->bytes));
  }
  series.plain = fit_size_law(volumes, times, false);
  series.law = fit_size_law(volumes, times, true);
  series.knots = fit_knots(series, points);
  return series;
}

std::vector<CollectiveSeries> fit_collectives(const std::vector<CollectivePoint>& points) {
  std::vector<CollectiveSeries> all;
  for (const auto& [key, group] : group_points(points)) {
    if (group.size() < kMinPoints) continue;
    CollectiveSeries series = fit_series(group);
    add_held_out_errors(group, series);
    all.push_back(std::move(series));
  }
  return all;
}

std::vector<CollectiveSeries> fit_logs(const std::vector<CollectivePoint>& points) {
  std::vector<CollectiveSeries> all;
  for (auto& [key, group] : group_points(points)) {
    if (group.size() < kMinPoints) continue;
    CollectiveSeries series = fit_series(group);
    series.knots.clear();
    Design plain;
    Design rooted;
    plain.num_columns = 2;
    rooted.num_columns = 3;
    std::vector<double> times;
    for (const CollectivePoint* point : group) {
      const double volume =
          static_cast<double>(point->bytes) * volume_factor(series.op, series.num_ranks);
      plain.values.insert(plain.values.end(), {1.0, volume});
      rooted.values.insert(rooted.values.end(), {1.0, volume, std::sqrt(volume)});
      times.push_back(point->time_s);
    }
    const std::vector<double> x = fit_minimax(plain, times);
    const std::vector<double> y = fit_minimax(rooted, times);
    series.plain = {x[0], x[1], 0.0};
    series.law = {y[0], y[1], y[2]};
    series.plain_error = summarise_errors(relative_errors(plain, x, times));
    series.law_error = summarise_errors(relative_errors(rooted, y, times));
    series.error = series.law_error;
    all.push_back(std::move(series));
  }
  return all;
}

std::vector<MoeSeries> fit_moe(const std::vector<MoePoint>& points) {
  std::map<MoeKey, MoePoints> groups;
  for (const MoePoint& point : points) {
    groups[{point.gpu, point.library, point.version, point.api, point.phase, point.dtype,
            point.num_ranks}]
        .push_back(&point);
  }
  std::vector<MoeSeries> all;
  for (const auto& [key, group] : groups) {
    if (group.size() < kMinPoints) continue;
    MoeSeries series = fit_moe_series(group);
    add_held_out_errors(group, series);
    all.push_back(std::move(series));
  }
  return all;
}

}  // namespace moe::topology
