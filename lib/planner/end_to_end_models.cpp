// From a measured operating point to the model that predicts it.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/planner/end_to_end.hpp"
#include "lib/planner/fit.hpp"

namespace moe::planner {
namespace {

// Mean tokens of a request in the cache, as a share of its output: ends are spread, and blocks are
// taken ahead.
constexpr double kHeldOutputShare = 0.6;
constexpr double kDaysPerMonth = 30.4;
constexpr double kUnknownAgeMonths = 1.0;
constexpr double kMaxAgeMonths = 6.0;

// Days since 1970 of "YYYY-MM-DD"; empty when it is not a date.
std::optional<double> day_number(const std::string& date) {
  if (date.size() != 10 || date[4] != '-' || date[7] != '-') return std::nullopt;
  const auto field = [&](std::size_t begin, std::size_t count) {
    int value = 0;
    for (std::size_t i = begin; i < begin + count; ++i) {
      if (date[i] < '0' || date[i] > '9') return -1;
      value = value * 10 + (date[i] - '0');
    }
    return value;
  };
  int year = field(0, 4);
  const int month = field(5, 2);
  const int day = field(8, 2);
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31) return std::nullopt;
  // Days of the proleptic Gregorian calendar with years that begin in March.
  year -= month <= 2 ? 1 : 0;
  const int era = year / 400;
  const int year_of_era = year - era * 400;
  const int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097.0 + day_of_era - 719468.0;
}

double age_months(const OperatingPoint& point, const std::string& reference) {
  const std::optional<double> day = day_number(point.date);
  const std::optional<double> zero = day_number(reference);
  if (!day || !zero) return kUnknownAgeMonths;
  return std::clamp((*zero - *day) / kDaysPerMonth, -1.0, kMaxAgeMonths);
}

Layout to_layout(const WorkerLayout& worker) {
  Layout layout;
  layout.tp = worker.tp;
  layout.dp = worker.dp;
  layout.pp = worker.pp;
  layout.ep = worker.ep;
  return layout;
}

// Rows do not name the cache's dtype. Recipes for Blackwell set FP8 with quantised weights, and so
// does TensorRT-LLM everywhere but for gpt-oss; the others keep BF16.
KvOptions row_kv(const OperatingPoint& point, const Accelerator& gpu,
                 const model::Architecture& architecture) {
  KvOptions kv;
  const bool is_mxfp4 = architecture.quant.expert.name == "mxfp4";
  const bool is_blackwell = gpu.fp4_flops_per_s.has_value();
  const bool is_quantized = point.precision == "fp4" || point.precision == "fp8";
  const bool is_fp8 = (is_blackwell && is_quantized) ||
                      (point.engine == "trtllm" && point.precision != "bf16" && !is_mxfp4);
  kv.dtype = parse_kv_dtype(is_fp8 ? "fp8" : "bf16");
  return kv;
}

double draft_tokens(const OperatingPoint& point, const model::Architecture& architecture,
                    const RowRules& rules) {
  // Only a model with prediction modules can draft with them; workers of a disaggregated system
  // are not covered by the rules.
  if (architecture.mtp_weights.empty() || point.is_disaggregated) return 0.0;
  for (const SpeculationRule& rule : rules.speculation) {
    if (rule.engine == point.engine && rule.engine_version == point.engine_version &&
        (rule.date_from.empty() || (!point.date.empty() && point.date >= rule.date_from))) {
      return rule.draft_tokens;
    }
  }
  return 0.0;
}

double room_for_requests(const model::Architecture& architecture, const Layout& layout,
                         const Accelerator& gpu, const StepSetup& setup, const RequestShape& shape,
                         const RowRules& rules) {
  FitOptions options;
  options.memory_bytes = gpu.usable_memory_bytes();
  options.utilization = rules.memory_utilization;
  options.kv = setup.kv;
  options.overhead.engine = setup.engine;
  options.request_tokens =
      static_cast<std::int64_t>(shape.input_tokens + kHeldOutputShare * shape.output_tokens);
  const FitResult result = fit(architecture, layout, options);
  // The row was measured, so it fits; a bound that forbids it is not one.
  return result.fits ? static_cast<double>(result.max_requests) : 0.0;
}

}  // namespace

ServingPoint PreparedPoint::predict() const {
  if (!measured.is_disaggregated) {
    return serve_closed_loop(models.front(), shape, measured.num_clients, max_requests);
  }
  Disaggregation system;
  system.decode = &models[0];
  system.prefill = &models[1];
  system.num_decode_workers = static_cast<std::int32_t>(measured.decode.num_workers);
  system.num_prefill_workers = static_cast<std::int32_t>(measured.prefill.num_workers);
  return serve_closed_loop(system, shape, measured.num_clients, max_requests);
}

PreparedPoints prepare_points(const std::vector<OperatingPoint>& points,
                              const HardwareFile& hardware, const ArchitectureSource& architectures,
                              const MeasuredTimes& measured, const RowRules& rules) {
  PreparedPoints result;
  std::map<std::string, std::int64_t> repeats;
  for (const OperatingPoint& point : points) {
    ++repeats[fmt::format("{}|{}", point_key(point), point.tpot_s)];
  }
  std::map<std::string, std::int64_t> reasons;
  const auto skip = [&](const std::string& reason) {
    ++reasons[reason];
    ++result.num_skipped;
  };
  for (const OperatingPoint& point : points) {
    const auto gpu = std::find_if(hardware.accelerators.begin(), hardware.accelerators.end(),
                                  [&](const Accelerator& a) { return a.id == point.gpu; });
    if (gpu == hardware.accelerators.end()) {
      skip("unknown GPU " + point.gpu);
      continue;
    }
    const model::Architecture* architecture = architectures(point);
    if (architecture == nullptr) {
      skip(fmt::format("no config for {} as {}", point.model, point.precision));
      continue;
    }
    PreparedPoint prepared;
    prepared.measured = point;
    StepSetup setup;
    try {
      setup.engine = parse_engine(point.engine);
    } catch (const Error&) {
      skip("unknown engine " + point.engine);
      continue;
    }
    setup.kv = row_kv(point, *gpu, *architecture);
    setup.draft_tokens = draft_tokens(point, *architecture, rules);
    setup.engine_age_months = age_months(point, measured.constants.reference_date);
    prepared.shape.input_tokens = std::max(1.0, point.input_tokens * rules.length_ratio);
    prepared.shape.output_tokens = std::max(1.0, point.output_tokens * rules.length_ratio);
    const Layout decode = to_layout(point.decode);
    try {
      prepared.models.emplace_back(*architecture, decode, *gpu, setup, measured);
      if (point.is_disaggregated) {
        prepared.models.emplace_back(*architecture, to_layout(point.prefill), *gpu, setup,
                                     measured);
      }
    } catch (const Error& error) {
      skip(fmt::format("{}: {}", describe(decode), error.what()));
      continue;
    }
    try {
      prepared.max_requests =
          room_for_requests(*architecture, decode, *gpu, setup, prepared.shape, rules);
    } catch (const Error&) {
      // It was measured, so some engine pads or splits what our rules refuse.
      prepared.max_requests = 0.0;
    }
    prepared.weight =
        1.0 / static_cast<double>(repeats[fmt::format("{}|{}", point_key(point), point.tpot_s)]);
    result.points.push_back(std::move(prepared));
  }
  for (const auto& [reason, count] : reasons) {
    result.skipped.push_back(fmt::format("{} rows: {}", count, reason));
  }
  return result;
}

}  // namespace moe::planner
