#include "lib/app/bench/serve_source.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/checkpoint.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/workload/workload.hpp"

namespace moe::app {
namespace {

// Below the size of any vocabulary in use, and above most of what tokenizers reserve.
constexpr std::int32_t kGuessedEndId = 1000;
constexpr std::int64_t kMaxPromptTokens = std::int64_t{1} << 24;
// A schedule is held in memory whole.
constexpr std::size_t kMaxArrivals = 100'000'000;
constexpr double kStressFactor = 1.5;
constexpr double kCurveStep_s = 0.05;

[[noreturn]] void fail_length(const std::string& option, const std::string& text) {
  throw Error(ErrorCode::kUsage,
              fmt::format("{} \"{}\": expected N, MIN-MAX, MEAN~CV, or the JSON of a workload's "
                          "lengths",
                          option, printable(text)));
}

std::optional<double> to_number(const std::string& text) {
  try {
    std::size_t used = 0;
    const double number = std::stod(text, &used);
    if (used == text.size() && std::isfinite(number)) return number;
  } catch (const std::logic_error&) {  // not a number, or beyond a double
  }
  return std::nullopt;
}

double number_in(const std::string& text, const std::string& option, const std::string& whole) {
  const std::optional<double> number = to_number(text);
  if (!number || *number <= 0.0 || *number > static_cast<double>(kMaxPromptTokens)) {
    fail_length(option, whole);
  }
  return *number;
}

std::int64_t tokens_in(const std::string& text, const std::string& option,
                       const std::string& whole) {
  const double number = number_in(text, option, whole);
  if (number != std::floor(number)) fail_length(option, whole);
  return static_cast<std::int64_t>(number);
}

// The first request of a trace is due at once: a replay does not wait for its midnight.
void read_trace(const LoadArgs& load, ServeInputs& inputs) {
  workload::TraceOptions options;
  if (!load.trace_format.empty()) {
    options.format = workload::parse_trace_format(load.trace_format);
    if (!options.format) {
      throw Error(ErrorCode::kUsage, fmt::format("--trace-format: expected one of {}",
                                                 fmt::join(workload::trace_format_names(), ", ")));
    }
  }
  workload::TraceProfiler profiler;
  const workload::TraceInfo info =
      workload::visit_trace(load.trace, options, [&](const workload::Request& request) {
        profiler.add(request);
        client::TraceRequest one;
        one.arrival_s = request.arrival_s.value_or(0.0);
        one.prompt_tokens = request.input_tokens;
        one.output_tokens = request.output_tokens;
        one.blocks.assign(request.prefix_blocks.begin(), request.prefix_blocks.end());
        inputs.trace.push_back(std::move(one));
      });
  if (!info.has_times) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a trace with arrival times, found {} without any; give "
                            "it as --dataset, with --rate",
                            load.trace, name_of(info.format)));
  }
  inputs.trace_profile = profiler.finish(info);
  inputs.trace_peak_per_s = inputs.trace_profile->peak_requests_per_s;
  std::stable_sort(inputs.trace.begin(), inputs.trace.end(),
                   [](const client::TraceRequest& a, const client::TraceRequest& b) {
                     return a.arrival_s < b.arrival_s;
                   });
}

void read_checkpoint(const RequestArgs& request, ServeInputs& inputs) {
  if (request.checkpoint.empty()) return;
  const std::filesystem::path directory = find_checkpoint(request.checkpoint, request.scenarios);
  const auto tokenizer = std::make_shared<const model::Tokenizer>(
      model::Tokenizer::load(directory / "tokenizer.json"));
  inputs.end_id = tokenizer->max_id() + 1;
  inputs.count_tokens = [tokenizer](std::string_view text) {
    if (!is_utf8(text)) return std::int64_t{0};
    return static_cast<std::int64_t>(tokenizer->encode(text, false).size());
  };
}

[[noreturn]] void fail_curve(const LoadArgs& load) {
  throw Error(
      ErrorCode::kUsage,
      load.ramp.empty()
          ? "--rate-series: expected SECONDS:RATE,SECONDS:RATE,... with rising seconds from "
            "0 and rates of 0 to 1e6, one of them positive"
          : "--ramp: expected FROM:TO, rates of 0 to 1e6, one of them positive");
}

// "A:B".
std::pair<double, double> pair_in(const std::string& text, const LoadArgs& load) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) fail_curve(load);
  const std::optional<double> first = to_number(text.substr(0, colon));
  const std::optional<double> second = to_number(text.substr(colon + 1));
  if (!first || !second) fail_curve(load);
  return {*first, *second};
}

std::vector<std::pair<double, double>> knots_of(const LoadArgs& load) {
  if (!load.ramp.empty()) {
    const auto [from, to] = pair_in(load.ramp, load);
    return {{0.0, from}, {load.duration_s, to}};
  }
  std::vector<std::pair<double, double>> knots;
  std::string rest = load.rate_series;
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(','));
    rest.erase(0, std::min(rest.size(), one.size() + 1));
    knots.push_back(pair_in(one, load));
  }
  return knots;
}

workload::RateCurve curve_of(const LoadArgs& load) {
  const std::vector<std::pair<double, double>> knots = knots_of(load);
  bool has_rate = false;
  for (std::size_t i = 0; i < knots.size(); ++i) {
    const bool is_rising = i == 0 ? knots[0].first == 0.0 : knots[i].first > knots[i - 1].first;
    if (!is_rising || knots[i].second < 0.0 || knots[i].second > 1e6) fail_curve(load);
    has_rate = has_rate || knots[i].second > 0.0;
  }
  if (knots.size() < 2 || !has_rate || knots.back().first > 1e6) fail_curve(load);
  std::vector<double> rates;
  std::size_t next = 1;
  const auto num_steps = static_cast<std::size_t>(knots.back().first / kCurveStep_s);
  for (std::size_t i = 0; i < std::max<std::size_t>(1, num_steps); ++i) {
    const double time_s = (static_cast<double>(i) + 0.5) * kCurveStep_s;
    while (next + 1 < knots.size() && time_s > knots[next].first) ++next;
    const auto& [from_s, from] = knots[next - 1];
    const auto& [to_s, to] = knots[next];
    rates.push_back(std::max(0.0, from + (to - from) * (time_s - from_s) / (to_s - from_s)));
  }
  return workload::RateCurve::steps(std::move(rates), kCurveStep_s);
}

workload::ArrivalProcess process_of(const LoadArgs& load) {
  workload::ArrivalProcess process;
  process.kind =
      workload::parse_arrival_kind(load.arrivals).value_or(workload::ArrivalKind::kPoisson);
  if (process.kind == workload::ArrivalKind::kEven) process.gap_cv = 0.0;
  if (process.kind == workload::ArrivalKind::kGamma) process.gap_cv = load.gap_cv;
  return process;
}

// Arrivals of a curve until the count is reached or the time is up.
std::vector<double> arrivals_of(const workload::RateCurve& curve, const LoadArgs& load,
                                std::int64_t count, double end_s) {
  workload::ArrivalGenerator generator(curve, process_of(load),
                                       static_cast<std::uint64_t>(load.seed));
  std::vector<double> times;
  while (count == 0 || static_cast<std::int64_t>(times.size()) < count) {
    const double time_s = generator.next_s();
    if (end_s > 0.0 && time_s >= end_s) break;
    if (times.size() >= kMaxArrivals) {
      throw Error(ErrorCode::kUsage, "the schedule has more than 100 million requests");
    }
    times.push_back(time_s);
  }
  if (times.empty()) {
    throw Error(ErrorCode::kUsage, "no request falls due within --duration; raise it or the rate");
  }
  return times;
}

}  // namespace

ServeInputs read_inputs(const LoadArgs& load, const RequestArgs& request) {
  // Wrong lengths are refused before any file is read or server asked.
  (void)parse_length_option(request.prompt_tokens, "--prompt-tokens");
  (void)parse_length_option(request.output_tokens, "--output-tokens");
  ServeInputs inputs;
  if (!request.dataset.empty()) {
    inputs.conversations = client::read_conversations(request.dataset, request.turns);
    inputs.prefers_chat = std::any_of(inputs.conversations.begin(), inputs.conversations.end(),
                                      [](const client::TextConversation& one) {
                                        return one.turns.size() > 1 || !one.system.empty();
                                      });
  }
  if (!load.trace.empty()) read_trace(load, inputs);
  read_checkpoint(request, inputs);
  if (request.vocab_size > 0) inputs.end_id = static_cast<std::int32_t>(request.vocab_size);
  if (inputs.end_id == 0) {
    inputs.end_id = kGuessedEndId;
    inputs.is_end_id_guessed = inputs.uses_ids();
  }
  return inputs;
}

std::unique_ptr<client::RequestSource> make_source(const ServeInputs& inputs, const LoadArgs& load,
                                                   const RequestArgs& request, client::Api api,
                                                   const client::BodyOptions& body) {
  const auto seed = static_cast<std::uint64_t>(load.seed);
  client::RandomIdsOptions ids;
  ids.prompt_tokens = parse_length_option(request.prompt_tokens, "--prompt-tokens");
  ids.output_tokens = parse_length_option(request.output_tokens, "--output-tokens");
  ids.end_id = inputs.end_id;
  ids.prefix_tokens = request.prefix_tokens;
  ids.num_prefixes = request.num_prefixes;
  ids.seed = seed;
  if (!inputs.conversations.empty()) {
    return std::make_unique<client::TextSource>(
        inputs.conversations, api, body,
        static_cast<std::int64_t>(std::llround(ids.output_tokens.mean())), seed);
  }
  if (!inputs.trace.empty()) {
    return std::make_unique<client::TraceSource>(inputs.trace, ids, body);
  }
  return std::make_unique<client::RandomIdsSource>(ids, body);
}

ServePoint closed_point(double clients) {
  return {LoadKind::kClosed, clients, fmt::format("c{:.0f}", clients)};
}

ServePoint rate_point(double rate) {
  return {LoadKind::kRate, rate, fmt::format("r{:.4g}", rate)};
}

std::vector<ServePoint> load_points(const LoadArgs& load, const ServeInputs& inputs) {
  std::vector<ServePoint> points;
  if (!inputs.trace.empty()) {
    const double peak = inputs.trace_peak_per_s.value_or(0.0) * load.rate_scale;
    if (load.is_stress) {
      if (peak <= 0.0) throw Error(ErrorCode::kInput, "--stress: the trace has no peak rate");
      return {{LoadKind::kStress, kStressFactor * peak, "stress"}};
    }
    const double mean = inputs.trace_profile->mean_requests_per_s.value_or(0.0) * load.rate_scale;
    return {{LoadKind::kTrace, mean, "trace"}};
  }
  if (!load.ramp.empty() || !load.rate_series.empty()) {
    return {{LoadKind::kCurve, curve_of(load).mean_requests_per_s(), "curve"}};
  }
  for (const double rate : parse_rates(load.rates, "--rate")) points.push_back(rate_point(rate));
  for (const std::int64_t clients : load.concurrency) {
    points.push_back(closed_point(static_cast<double>(clients)));
  }
  if (points.empty()) points.push_back(closed_point(1.0));
  return points;
}

void plan_point(const ServePoint& point, const LoadArgs& load, const ServeInputs& inputs,
                client::LoadPlan& plan) {
  const std::int64_t count = load.duration_s > 0.0 ? 0 : load.requests;
  plan.max_duration_s = load.duration_s;
  plan.arrivals_s.clear();
  switch (point.kind) {
    case LoadKind::kClosed:
      plan.concurrency = static_cast<std::int64_t>(point.load);
      plan.num_conversations = count;
      break;
    case LoadKind::kRate:
    case LoadKind::kStress:
      plan.arrivals_s =
          arrivals_of(workload::RateCurve::constant(point.load), load, count, load.duration_s);
      break;
    case LoadKind::kCurve: {
      const workload::RateCurve curve = curve_of(load);
      const double end_s = load.duration_s > 0.0 ? load.duration_s : curve.period_s();
      plan.arrivals_s = arrivals_of(curve, load, 0, end_s);
      break;
    }
    case LoadKind::kTrace:
      for (const client::TraceRequest& request : inputs.trace) {
        const double time_s = request.arrival_s / load.rate_scale;
        if (load.duration_s > 0.0 && time_s >= load.duration_s) break;
        if (count > 0 && static_cast<std::int64_t>(plan.arrivals_s.size()) >= count) break;
        plan.arrivals_s.push_back(time_s);
      }
      break;
  }
}

workload::LengthDistribution parse_length_option(const std::string& text,
                                                 const std::string& option) {
  if (!text.empty() && text.front() == '{') {
    return workload::parse_lengths(json::parse(text, option), option);
  }
  if (const std::size_t dash = text.find('-'); dash != std::string::npos) {
    const std::int64_t low = tokens_in(text.substr(0, dash), option, text);
    const std::int64_t high = tokens_in(text.substr(dash + 1), option, text);
    if (low > high) fail_length(option, text);
    return workload::LengthDistribution::uniform(low, high);
  }
  if (const std::size_t tilde = text.find('~'); tilde != std::string::npos) {
    const double mean = number_in(text.substr(0, tilde), option, text);
    const double cv = number_in(text.substr(tilde + 1), option, text);
    const auto max = std::max<std::int64_t>(1, std::llround(mean * 16.0));
    return workload::LengthDistribution::lognormal(mean, cv, max);
  }
  return workload::LengthDistribution::fixed(tokens_in(text, option, text));
}

}  // namespace moe::app
