#pragma once

// The scenario file of moe-plan (reports/schema/scenario.schema.json): model, hardware, engine,
// workload, service level, sizing rules, power and prices of one question. Flags override it.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/json/read.hpp"
#include "lib/planner/cost.hpp"
#include "lib/planner/overhead.hpp"
#include "lib/planner/power.hpp"
#include "lib/planner/size.hpp"
#include "lib/workload/workload.hpp"

namespace moe::app {

// One thing the plan rests on: given by the user, or a default that the report must show.
struct Assumption {
  std::string name;
  std::string value;
  bool is_given = false;
  std::string source;  // the file's own words, or where the default comes from
};

struct Scenario {
  std::string title;
  std::string path;          // empty: flags alone
  std::string content_hash;  // of the file
  std::string source;        // where the question and its figures come from

  std::string model;
  std::string weight_format;
  std::vector<std::string> gpus;
  std::string hardware_file;
  std::int64_t num_gpus = 0;          // given; 0: search
  std::optional<std::string> layout;  // given; nullopt: search

  std::string engine = "vllm";
  double utilization = 0.9;
  std::string kv_dtype = "auto";
  std::string kv_manager = "hybrid";
  std::int64_t block_tokens = 16;
  std::int64_t max_batched_tokens = 8192;
  std::int64_t max_sequences = 256;
  bool has_deepep = false;
  double draft_tokens = 0.0;
  double accepted_per_step = 1.0;

  workload::Workload workload;
  bool has_workload = false;

  double ttft_s = 2.0;
  double tpot_s = 0.05;
  bool is_ttft_p99 = true;
  double availability_ratio = 0.999;

  double load_ratio = 0.8;
  double growth_ratio = 0.3;
  std::string failure_domain = "node";
  std::int32_t num_spare_domains = 1;
  std::int64_t max_gpus = 512;
  // Prompts and answers whose cache is planned for: this percentile of each.
  double cache_percentile = 0.99;

  double node_overhead_ratio = 0.82;
  double average_load_ratio = 0.7;
  double pue = 1.3;
  double rack_limit_kw = 40.0;
  std::int32_t max_nodes_per_rack = 8;

  planner::Prices prices;                         // for every GPU type
  std::map<std::string, planner::Prices> by_gpu;  // by id, in place of the above
  std::string prices_source;

  std::string skew_report;
  std::string a2a_report;

  // Keys of the file and flags that were given, "sizing.load_ratio".
  std::map<std::string, bool> given;
};

// Reads and checks against the schema. Paths in the file are relative to it. Throws Error(kInput).
[[nodiscard]] Scenario read_scenario(const std::filesystem::path& path);
[[nodiscard]] Scenario parse_scenario(const json::Json& document, const std::string& where,
                                      const std::filesystem::path& directory);

// Everything the plan rests on that is not read from the model or the hardware file.
[[nodiscard]] std::vector<Assumption> list_assumptions(const Scenario& scenario);

}  // namespace moe::app
