#include "lib/workload/workload.hpp"

#include <array>
#include <cmath>
#include <initializer_list>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace moe::workload {
namespace {

using json::Json;

constexpr std::int64_t kDefaultMaxTokens = 131072;

void require_keys(const Json& object, const std::string& where,
                  std::initializer_list<const char*> known) {
  if (!object.is_object()) fail_input(where, "expected an object");
  for (const auto& [key, value] : object.items()) {
    bool is_known = false;
    for (const char* one : known) is_known = is_known || key == one;
    if (!is_known) {
      fail_input(where, fmt::format(
                            "unknown key \"{}\"; known are {}", key,
                            fmt::join(std::vector<std::string>(known.begin(), known.end()), ", ")));
    }
  }
}

// What `make` refuses, with the place in front.
template <typename Make>
auto made_at(const std::string& where, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  }
}

std::optional<double> number_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (!found->is_number()) fail_input(where, fmt::format("expected a number in \"{}\"", key));
  return found->get<double>();
}

double required_number(const Json& object, const char* key, const std::string& where) {
  const std::optional<double> number = number_at(object, key, where);
  if (!number) fail_input(where, fmt::format("\"{}\" is missing", key));
  return *number;
}

std::int64_t whole(double number, const std::string& where) {
  if (!(number >= 1.0) || number > static_cast<double>(kMaxTokens) ||
      std::floor(number) != number) {
    fail_input(where,
               fmt::format("expected a whole number from 1 to {}, found {}", kMaxTokens, number));
  }
  return static_cast<std::int64_t>(number);
}

std::optional<std::string> text_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (!found->is_string()) fail_input(where, fmt::format("expected a text in \"{}\"", key));
  return found->get<std::string>();
}

void read_process(const Json& object, const std::string& where, Workload& workload) {
  const std::string name = text_at(object, "process", where).value_or("poisson");
  const std::optional<ArrivalKind> kind = parse_arrival_kind(name);
  if (!kind) {
    fail_input(where, fmt::format("expected \"process\" to be even, poisson or gamma, found \"{}\"",
                                  name));
  }
  workload.process.kind = *kind;
  const std::optional<double> gap_cv = number_at(object, "gap_cv", where);
  if (gap_cv && *kind != ArrivalKind::kGamma) {
    fail_input(where, fmt::format("\"gap_cv\" belongs to gamma arrivals, these are {}", name));
  }
  if (*kind == ArrivalKind::kGamma) {
    if (!gap_cv || !(*gap_cv > 0.0 && *gap_cv <= 50.0)) {
      fail_input(where, "gamma arrivals need a \"gap_cv\" above 0 and up to 50");
    }
    workload.process.gap_cv = *gap_cv;
  } else {
    workload.process.gap_cv = *kind == ArrivalKind::kEven ? 0.0 : 1.0;
  }
}

void read_arrivals(const Json& object, const std::string& where, Workload& workload) {
  require_keys(object, where,
               {"requests_per_s", "process", "gap_cv", "peak_over_mean", "hourly_requests_per_s",
                "concurrency"});
  const std::optional<double> rate = number_at(object, "requests_per_s", where);
  const std::optional<double> concurrency = number_at(object, "concurrency", where);
  const auto hourly = object.find("hourly_requests_per_s");
  const int ways = (rate ? 1 : 0) + (concurrency ? 1 : 0) + (hourly != object.end() ? 1 : 0);
  if (ways != 1) {
    fail_input(where,
               "expected exactly one of \"requests_per_s\", \"hourly_requests_per_s\" and "
               "\"concurrency\"");
  }
  workload.arrivals.reset();
  workload.concurrency.reset();
  workload.arrivals_source = "given";
  if (concurrency) {
    workload.concurrency = whole(*concurrency, where);
    return;
  }
  read_process(object, where, workload);
  const std::optional<double> peak = number_at(object, "peak_over_mean", where);
  if (rate) {
    workload.arrivals = made_at(where, [&] {
      return peak ? RateCurve::diurnal(*rate, *peak) : RateCurve::constant(*rate);
    });
    return;
  }
  if (peak)
    fail_input(where, "hourly rates have their own peak: \"peak_over_mean\" does not go along");
  if (!hourly->is_array()) fail_input(where, "expected an array in \"hourly_requests_per_s\"");
  std::vector<double> rates;
  for (const Json& one : *hourly) {
    if (!one.is_number()) fail_input(where, "expected numbers in \"hourly_requests_per_s\"");
    rates.push_back(one.get<double>());
  }
  workload.arrivals = made_at(where, [&] { return RateCurve::steps(std::move(rates), 3600.0); });
}

// What the trace says; figures given beside it replace these.
void read_trace(const Json& object, const std::string& where,
                const std::filesystem::path& directory, Workload& workload) {
  require_keys(object, where, {"path", "format", "rate_scale"});
  const std::optional<std::string> path = text_at(object, "path", where);
  if (!path) fail_input(where, "\"path\" is missing");
  TraceOptions options;
  if (const std::optional<std::string> name = text_at(object, "format", where)) {
    options.format = parse_trace_format(*name);
    if (!options.format) {
      fail_input(where, fmt::format("expected \"format\" to be one of {}, found \"{}\"",
                                    fmt::join(trace_format_names(), ", "), *name));
    }
  }
  const double scale = number_at(object, "rate_scale", where).value_or(1.0);
  if (!(scale > 0.0 && scale <= 1e9)) fail_input(where, "expected a positive \"rate_scale\"");
  const std::filesystem::path file =
      std::filesystem::path(*path).is_absolute() ? std::filesystem::path(*path) : directory / *path;
  workload.trace = profile_trace(file, options);
  workload.trace_path = file.string();
  const std::string source = fmt::format("trace {}", file.filename().string());
  workload.input_tokens = workload.trace->input_tokens;
  workload.output_tokens = workload.trace->output_tokens;
  workload.lengths_source =
      workload.trace->info.is_token_estimate ? source + ", tokens taken as bytes / 4" : source;
  if (workload.trace->prefix_hit_ratio) {
    workload.prefix_hit_ratio = *workload.trace->prefix_hit_ratio;
    workload.prefix_source = source + ", unbounded prefix cache";
  }
  if (!workload.trace->mean_requests_per_s) return;
  // The busiest minute, not the busiest hour, is what a queue has to live with.
  const double mean = *workload.trace->mean_requests_per_s * scale;
  const double peak = *workload.trace->peak_requests_per_s * scale;
  const double period_s = std::max(workload.trace->duration_s, 1.0);
  const double busy_steps = std::max(1.0, std::round(period_s / 60.0));
  std::vector<double> rates;
  if (workload.trace->hourly) {
    rates = workload.trace->hourly->scaled(scale).rates();
    workload.arrivals = RateCurve::steps(std::move(rates), 3600.0);
  } else if (busy_steps <= 1.0) {
    workload.arrivals = RateCurve::constant(mean);
  } else {
    // One busy minute, the rest as quiet as the mean asks.
    const double rest = std::max(0.0, (mean * busy_steps - peak) / (busy_steps - 1.0));
    rates.assign(static_cast<std::size_t>(busy_steps), rest);
    rates.front() = peak;
    workload.arrivals = RateCurve::steps(std::move(rates), 60.0);
  }
  workload.arrivals_source = source;
  const double cv = workload.trace->gap_cv.value_or(1.0);
  if (cv > 0.0 && cv <= 50.0) workload.process = {ArrivalKind::kGamma, cv};
}

}  // namespace

double Workload::mean_requests_per_s() const {
  return arrivals ? arrivals->mean_requests_per_s() : 0.0;
}

double Workload::peak_requests_per_s() const {
  return arrivals ? arrivals->peak_requests_per_s() : 0.0;
}

LengthDistribution parse_lengths(const Json& value, const std::string& where) {
  if (value.is_number()) return LengthDistribution::fixed(whole(value.get<double>(), where));
  require_keys(value, where, {"uniform", "mean", "cv", "p50", "p99", "max"});
  if (const auto range = value.find("uniform"); range != value.end()) {
    const bool is_pair = range->is_array() && range->size() == 2 && (*range)[0].is_number() &&
                         (*range)[1].is_number() && value.size() == 1;
    if (!is_pair)
      fail_input(where, "expected \"uniform\": [smallest, largest] and nothing beside it");
    const std::int64_t low = whole((*range)[0].get<double>(), where);
    const std::int64_t high = whole((*range)[1].get<double>(), where);
    return made_at(where, [&] { return LengthDistribution::uniform(low, high); });
  }
  const std::int64_t max =
      whole(number_at(value, "max", where).value_or(static_cast<double>(kDefaultMaxTokens)), where);
  if (value.contains("mean")) {
    if (value.contains("p50") || value.contains("p99")) {
      fail_input(where, "expected either \"mean\" and \"cv\" or \"p50\" and \"p99\"");
    }
    const double mean = required_number(value, "mean", where);
    const double cv = required_number(value, "cv", where);
    return made_at(where, [&] { return LengthDistribution::lognormal(mean, cv, max); });
  }
  if (value.contains("cv")) fail_input(where, "\"cv\" goes with \"mean\"");
  const double p50 = required_number(value, "p50", where);
  const double p99 = required_number(value, "p99", where);
  return made_at(where,
                 [&] { return LengthDistribution::lognormal_from_percentiles(p50, p99, max); });
}

Workload parse_workload(const Json& document, const std::string& where,
                        const std::filesystem::path& directory) {
  require_keys(
      document, where,
      {"input_tokens", "output_tokens", "arrivals", "prefix_hit_ratio", "trace", "source"});
  Workload workload;
  if (document.contains("trace")) {
    read_trace(document["trace"], where + ": trace", directory, workload);
  }
  for (const char* key : {"input_tokens", "output_tokens"}) {
    if (!document.contains(key)) {
      if (!workload.trace) fail_input(where, fmt::format("\"{}\" is missing", key));
      continue;
    }
    LengthDistribution& lengths =
        std::string(key) == "input_tokens" ? workload.input_tokens : workload.output_tokens;
    lengths = parse_lengths(document[key], fmt::format("{}: {}", where, key));
    if (workload.trace) {
      workload.lengths_source += fmt::format("; {} given", key);
    } else {
      workload.lengths_source = "given";
    }
  }
  if (document.contains("arrivals")) {
    read_arrivals(document["arrivals"], where + ": arrivals", workload);
  }
  if (!workload.arrivals && !workload.concurrency) {
    fail_input(where, workload.trace ? "the trace has no times, so \"arrivals\" is needed"
                                     : "\"arrivals\" is missing");
  }
  if (const std::optional<double> hits = number_at(document, "prefix_hit_ratio", where)) {
    if (!(*hits >= 0.0 && *hits < 1.0)) {
      fail_input(where,
                 fmt::format("expected \"prefix_hit_ratio\" from 0 to below 1, found {}", *hits));
    }
    workload.prefix_hit_ratio = *hits;
    workload.prefix_source = "given";
  }
  if (workload.prefix_source.empty()) workload.prefix_source = "none assumed";
  return workload;
}

}  // namespace moe::workload
