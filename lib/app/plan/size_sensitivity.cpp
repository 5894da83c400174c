#include "lib/app/plan/size_sensitivity.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "lib/app/plan/tool_reports.hpp"

namespace moe::app {
namespace {

using planner::SizeCase;

// Where no group of measured rows tells how far the model is off.
constexpr double kDefaultError = 0.15;
constexpr double kSkewExponent = 0.8;

// GPUs needed without rounding; nullopt when the layout does not work.
std::optional<double> gpus_needed(const SizeCase& c, const planner::Layout& layout) {
  const planner::SizePlan plan = planner::size_layout(c, layout);
  if (!plan.works()) return std::nullopt;
  return plan.deployments_exact * layout.gpus();
}

class SensitivityInputs {
 public:
  SensitivityInputs(const SizeCase& base, const planner::Layout& layout, double usd_per_gpu_year)
      : base_(base), layout_(layout), usd_(usd_per_gpu_year) {}

  void add(const std::string& name, const std::string& low, const std::string& high,
           const std::function<void(SizeCase&)>& to_low,
           const std::function<void(SizeCase&)>& to_high) {
    rows_.push_back({name, low, high, evaluate(to_low), evaluate(to_high)});
  }
  void add_price(const std::string& low, const std::string& high, double low_factor,
                 double high_factor) {
    const auto at = [this](double factor) {
      return [this, factor]() -> std::optional<double> {
        const auto gpus = gpus_needed(base_, layout_);
        return gpus ? std::optional<double>(*gpus * usd_ * factor) : std::nullopt;
      };
    };
    rows_.push_back({"price", low, high, at(low_factor), at(high_factor)});
  }
  [[nodiscard]] const std::vector<planner::SensitivityInput>& rows() const { return rows_; }

 private:
  std::function<std::optional<double>()> evaluate(const std::function<void(SizeCase&)>& change) {
    return [this, change]() -> std::optional<double> {
      SizeCase c = base_;
      change(c);
      const auto gpus = gpus_needed(c, layout_);
      return gpus ? std::optional<double>(*gpus * usd_) : std::nullopt;
    };
  }

  SizeCase base_;
  planner::Layout layout_;
  double usd_;
  std::vector<planner::SensitivityInput> rows_;
};

void scale_tokens(SizeCase& c, double input, double output) {
  const double before = c.demand.shape.input_tokens + c.demand.shape.output_tokens;
  c.demand.shape.input_tokens *= input;
  c.demand.shape.cached_input_tokens *= input;
  c.demand.shape.output_tokens *= output;
  const double after = c.demand.shape.input_tokens + c.demand.shape.output_tokens;
  c.demand.request_tokens = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(c.demand.request_tokens) * after / before));
}

double model_error(const GpuResult& result) {
  const planner::StepModel model(*result.size_case.architecture, result.best().layout, result.gpu,
                                 result.size_case.setup, *result.size_case.measured);
  const double seen = model.held_out_error().tpot_p90;
  return seen > 0.0 ? std::min(seen, 0.9) : kDefaultError;
}

void add_inputs(const SizeInputs& inputs, const GpuResult& result, SensitivityInputs& rows) {
  rows.add(
      "output tokens", "-20 %", "+20 %", [](SizeCase& c) { scale_tokens(c, 1.0, 0.8); },
      [](SizeCase& c) { scale_tokens(c, 1.0, 1.2); });
  rows.add(
      "input tokens", "-20 %", "+20 %", [](SizeCase& c) { scale_tokens(c, 0.8, 1.0); },
      [](SizeCase& c) { scale_tokens(c, 1.2, 1.0); });
  const double hits = inputs.scenario.workload.prefix_hit_ratio;
  const double fewer = std::max(0.0, hits - 0.2);
  const double more = std::min(0.95, hits + 0.2);
  const auto set_hits = [](double ratio) {
    return [ratio](SizeCase& c) {
      c.demand.shape.cached_input_tokens = ratio * c.demand.shape.input_tokens;
    };
  };
  rows.add("prefix cache hits", fmt::format("{:.0f} %", 100.0 * fewer),
           fmt::format("{:.0f} %", 100.0 * more), set_hits(fewer), set_hits(more));
  const double error = model_error(result);
  rows.add(
      "step times", fmt::format("-{:.0f} %", 100.0 * error / (1.0 + error)),
      fmt::format("+{:.0f} %", 100.0 * error),
      [error](SizeCase& c) { c.time_factor /= 1.0 + error; },
      [error](SizeCase& c) { c.time_factor *= 1.0 + error; });
  rows.add(
      "planned load",
      fmt::format("{:.0f} %", 100.0 * std::min(1.0, inputs.scenario.load_ratio + 0.1)),
      fmt::format("{:.0f} %", 100.0 * std::max(0.1, inputs.scenario.load_ratio - 0.1)),
      [](SizeCase& c) { c.rules.load_ratio = std::min(1.0, c.rules.load_ratio + 0.1); },
      [](SizeCase& c) { c.rules.load_ratio = std::max(0.1, c.rules.load_ratio - 0.1); });
  rows.add(
      "growth", "none",
      fmt::format("{:.0f} %", 200.0 * std::max(0.15, inputs.scenario.growth_ratio)),
      [](SizeCase& c) { c.rules.growth_ratio = 0.0; },
      [](SizeCase& c) { c.rules.growth_ratio = 2.0 * std::max(0.15, c.rules.growth_ratio); });
  rows.add(
      "bursts (cv of gaps)", "1", "2.5", [](SizeCase& c) { c.demand.gap_cv = 1.0; },
      [](SizeCase& c) { c.demand.gap_cv = 2.5; });
  const auto set_dtype = [](const char* name) {
    return [name](SizeCase& c) {
      c.fit.kv.dtype = planner::parse_kv_dtype(name);
      c.setup.kv.dtype = c.fit.kv.dtype;
    };
  };
  rows.add("KV cache dtype", "fp8", "bf16", set_dtype("fp8"), set_dtype("bf16"));
  if (inputs.model.architecture.is_moe()) {
    std::int64_t experts = 0;
    for (const model::LayerSpec& layer : inputs.model.architecture.layers) {
      experts = std::max<std::int64_t>(experts, layer.ffn.num_experts);
    }
    rows.add(
        "expert skew", "uniform", fmt::format("power law {:g}", kSkewExponent),
        [](SizeCase& c) { c.setup.skew = {}; },
        [experts](SizeCase& c) {
          c.setup.skew.popularity =
              deal_popularity(planner::power_law_popularity(experts, kSkewExponent));
          c.setup.skew.rank_max_over_mean = 0.0;
        });
  }
  if (result.size_case.setup.draft_tokens > 0.0) {
    rows.add(
        "tokens gained a step", "+20 %", "-20 %",
        [](SizeCase& c) { c.setup.accepted_per_step *= 1.2; },
        [](SizeCase& c) {
          c.setup.accepted_per_step = std::max(1.0, 0.8 * c.setup.accepted_per_step);
        });
  }
}

}  // namespace

void add_sensitivity(const SizeInputs& inputs, GpuResult& result) {
  const planner::SizePlan& plan = result.best();
  const std::optional<double> usd = result.usd_per_year();
  const double usd_per_gpu = usd ? *usd / result.fleet.num_gpus : 1.0;
  result.sensitivity_unit = usd ? "USD" : "1";
  result.sensitivity_base = plan.deployments_exact * plan.layout.gpus() * usd_per_gpu;
  SizeCase base = result.size_case;
  base.rules.fixed_gpus = 0;
  base.gpu = &result.gpu;
  SensitivityInputs rows(base, plan.layout, usd_per_gpu);
  add_inputs(inputs, result, rows);
  if (usd) rows.add_price("-20 %", "+20 %", 0.8, 1.2);
  result.sensitivity = planner::tornado(result.sensitivity_base, rows.rows());
}

}  // namespace moe::app
