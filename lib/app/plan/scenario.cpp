#include "lib/app/plan/scenario.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/plan/plan_inputs.hpp"
#include "lib/base/error.hpp"
#include "lib/json/schema_check.hpp"
#include "lib/report/embedded.hpp"

namespace moe::app {
namespace {

namespace fs = std::filesystem;
using json::Json;

// Reads keys of one object and notes that they were given.
class Section {
 public:
  Section(const Json& document, const char* name, Scenario& scenario)
      : name_(name), scenario_(scenario) {
    const auto found = document.find(name);
    if (found != document.end()) object_ = &*found;
  }

  template <typename Value>
  void take(const char* key, Value& target) {
    if (const Json* value = find(key)) target = value->get<Value>();
  }
  template <typename Value>
  void take(const char* key, std::optional<Value>& target) {
    if (const Json* value = find(key)) target = value->get<Value>();
  }

 private:
  const Json* find(const char* key) {
    if (object_ == nullptr) return nullptr;
    const auto found = object_->find(key);
    if (found == object_->end()) return nullptr;
    scenario_.given[fmt::format("{}.{}", name_, key)] = true;
    return &*found;
  }

  std::string name_;
  Scenario& scenario_;
  const Json* object_ = nullptr;
};

void read_engine(const Json& document, Scenario& s) {
  Section engine(document, "engine", s);
  engine.take("name", s.engine);
  engine.take("utilization_ratio", s.utilization);
  engine.take("kv_dtype", s.kv_dtype);
  engine.take("kv_manager", s.kv_manager);
  engine.take("block_tokens", s.block_tokens);
  engine.take("max_batched_tokens", s.max_batched_tokens);
  engine.take("max_sequences", s.max_sequences);
  engine.take("deepep", s.has_deepep);
  engine.take("draft_tokens", s.draft_tokens);
  engine.take("accepted_per_step", s.accepted_per_step);
}

void read_rules(const Json& document, Scenario& s) {
  Section slo(document, "slo", s);
  slo.take("ttft_s", s.ttft_s);
  slo.take("tpot_s", s.tpot_s);
  slo.take("availability_ratio", s.availability_ratio);
  std::string statistic = "p99";
  slo.take("ttft_statistic", statistic);
  s.is_ttft_p99 = statistic == "p99";
  Section sizing(document, "sizing", s);
  sizing.take("load_ratio", s.load_ratio);
  sizing.take("growth_ratio", s.growth_ratio);
  sizing.take("failure_domain", s.failure_domain);
  sizing.take("spare_domains", s.num_spare_domains);
  sizing.take("max_gpus_per_deployment", s.max_gpus);
  sizing.take("cache_percentile_ratio", s.cache_percentile);
  Section power(document, "power", s);
  power.take("node_overhead_ratio", s.node_overhead_ratio);
  power.take("average_load_ratio", s.average_load_ratio);
  power.take("pue", s.pue);
  power.take("rack_limit_kw", s.rack_limit_kw);
  power.take("max_nodes_per_rack", s.max_nodes_per_rack);
}

// `prices` holds what stays when a key is absent. Returns the source.
std::string read_prices(const Json& document, const char* name, Scenario& s,
                        planner::Prices& prices) {
  Section section(document, name, s);
  std::string source;
  section.take("source", source);
  section.take("rent_usd_per_gpu_hour", prices.rent_per_gpu_hour);
  section.take("gpu_usd", prices.gpu);
  section.take("node_usd", prices.node);
  section.take("network_usd_per_gpu", prices.network_per_gpu);
  section.take("rack_usd", prices.rack);
  section.take("depreciation_years", prices.depreciation_years);
  section.take("residual_ratio", prices.residual_ratio);
  section.take("capital_ratio_per_year", prices.capital_ratio_per_year);
  section.take("maintenance_ratio_per_year", prices.maintenance_ratio_per_year);
  section.take("energy_usd_per_kwh", prices.energy_per_kwh);
  section.take("hosting_usd_per_kw_month", prices.hosting_per_kw_month);
  section.take("licence_usd_per_gpu_year", prices.licence_per_gpu_year);
  section.take("staff_usd_per_year", prices.staff_per_year);
  return source;
}

// A path of the file as seen from here; names of scenarios (no such file) stay names.
std::string resolve(const std::string& path, const fs::path& directory) {
  if (path.empty() || fs::path(path).is_absolute()) return path;
  std::error_code ignored;
  const fs::path beside = directory / path;
  return fs::exists(beside, ignored) ? beside.string() : path;
}

}  // namespace

Scenario parse_scenario(const Json& document, const std::string& where, const fs::path& directory) {
  static const Json schema =
      json::parse(report::embedded::scenario_schema(), "scenario.schema.json");
  if (const auto errors = json::check_schema(document, schema); !errors.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: not a valid scenario: {}: {}", where,
                            errors.front().pointer.empty() ? "/" : errors.front().pointer,
                            errors.front().message));
  }
  Scenario s;
  s.path = where;
  s.title = document.value("title", std::string());
  s.source = document.value("source", std::string());
  Section model(document, "model", s);
  model.take("config", s.model);
  model.take("weight_format", s.weight_format);
  s.model = resolve(s.model, directory);
  Section hardware(document, "hardware", s);
  hardware.take("gpus", s.gpus);
  hardware.take("file", s.hardware_file);
  hardware.take("num_gpus", s.num_gpus);
  hardware.take("layout", s.layout);
  s.hardware_file = resolve(s.hardware_file, directory);
  read_engine(document, s);
  read_rules(document, s);
  s.workload = workload::parse_workload(document["workload"], where + ": workload", directory);
  s.has_workload = true;
  s.prices_source = read_prices(document, "prices", s, s.prices);
  if (const auto by_gpu = document.find("prices_by_gpu"); by_gpu != document.end()) {
    for (const auto& [gpu, prices] : by_gpu->items()) {
      planner::Prices own = s.prices;
      const std::string source = read_prices(*by_gpu, gpu.c_str(), s, own);
      if (!source.empty()) s.prices_source += fmt::format("; {}: {}", gpu, source);
      s.by_gpu[gpu] = own;
    }
  }
  s.skew_report = resolve(document.value("skew_report", std::string()), directory);
  s.a2a_report = resolve(document.value("a2a_report", std::string()), directory);
  return s;
}

Scenario read_scenario(const fs::path& path) {
  const std::string text = read_text(path);
  Scenario scenario =
      parse_scenario(json::parse(text, path.string()), path.string(), path.parent_path());
  scenario.content_hash = text_hash(text);
  if (scenario.title.empty()) scenario.title = path.stem().string();
  return scenario;
}

std::vector<Assumption> list_assumptions(const Scenario& s) {
  std::vector<Assumption> out;
  const auto add = [&](const char* key, const std::string& name, const std::string& value,
                       const std::string& source) {
    const bool is_given = s.given.count(key) != 0;
    out.push_back({name, value, is_given, is_given ? "given" : source});
  };
  const auto percent = [](double ratio) { return fmt::format("{:g} %", 100.0 * ratio); };
  const std::string engine_default = "default of the engine";
  add("engine.name", "engine", s.engine, "default");
  add("engine.utilization_ratio", "memory the engine may use", percent(s.utilization),
      engine_default);
  add("engine.kv_dtype", "KV cache dtype", s.kv_dtype,
      "the engines keep 16 bit for FP8 checkpoints, too");
  add("engine.kv_manager", "KV cache manager", s.kv_manager, engine_default);
  add("engine.max_batched_tokens", "prompt tokens a pass", fmt::format("{}", s.max_batched_tokens),
      engine_default);
  add("engine.max_sequences", "sequences a step", fmt::format("{}", s.max_sequences),
      engine_default);
  add("engine.accepted_per_step", "tokens gained a step", fmt::format("{:g}", s.accepted_per_step),
      "no speculative decoding");
  add("slo.ttft_s", "TTFT limit",
      fmt::format("{:g} s ({})", s.ttft_s, s.is_ttft_p99 ? "p99" : "mean"), "default");
  add("slo.tpot_s", "TPOT limit", fmt::format("{:g} s (mean of a request)", s.tpot_s), "default");
  add("slo.availability_ratio", "availability", percent(s.availability_ratio), "default");
  add("sizing.load_ratio", "planned load", percent(s.load_ratio) + " of the rate at the limit",
      "0.6 to 0.8 leave room for bursts that a mean does not show");
  add("sizing.growth_ratio", "growth", percent(s.growth_ratio) + " over today's peak",
      "rule of thumb, no forecast");
  add("sizing.failure_domain", "failure domain", s.failure_domain, "default");
  add("sizing.spare_domains", "spare failure domains", fmt::format("{}", s.num_spare_domains),
      "N+1");
  add("sizing.cache_percentile_ratio", "length whose cache is planned for",
      fmt::format("p{:g}", 100.0 * s.cache_percentile), "default");
  add("power.node_overhead_ratio", "node power beside GPUs", percent(s.node_overhead_ratio),
      "DGX H100: 10.2 kW for 8 x 700 W");
  add("power.average_load_ratio", "average over rated power", percent(s.average_load_ratio),
      "assumed; measure it");
  add("power.pue", "PUE", fmt::format("{:g}", s.pue), "assumed; ask the data centre");
  add("power.rack_limit_kw", "power of a rack", fmt::format("{:g} kW", s.rack_limit_kw),
      "assumed; ask the data centre");
  return out;
}

}  // namespace moe::app
