// Planning at the size of DeepSeek-V3: 58 layers x 256 experts -> 288 slots on 32 GPUs, validation
// included, on one core; recorded counts of prefill and log-normal ones.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "lib/balance/eplb.hpp"
#include "lib/balance/planner.hpp"
#include "lib/base/rng.hpp"
#include "lib/json/read.hpp"

namespace moe::balance {
namespace {

LoadMatrix recorded() {
  const json::Json document =
      json::parse_file(MOE_SOURCE_DIR "/tests/data/routing/sglang_dsv3/prefill_in1024.json");
  LoadMatrix loads{.num_layers = 0, .num_experts = 256, .values = {}};
  for (const json::Json& row : document.at("logical_count")) {
    const auto counts = row.get<std::vector<double>>();
    if (total(counts) <= 0.0) continue;
    loads.values.insert(loads.values.end(), counts.begin(), counts.end());
    ++loads.num_layers;
  }
  return loads;
}

LoadMatrix log_normal() {
  LoadMatrix loads{.num_layers = 58, .num_experts = 256, .values = {}};
  Rng rng(0);
  for (int i = 0; i < 58 * 256; ++i) {
    loads.values.push_back(std::floor(1e4 * std::exp(rng.next_normal())));
  }
  return loads;
}

LoadMatrix loads_of(const benchmark::State& state) {
  return state.range(1) == 0 ? recorded() : log_normal();
}

void bench_eplb(benchmark::State& state) {
  const LoadMatrix loads = loads_of(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        plan_eplb(loads, {.num_slots = static_cast<std::int32_t>(state.range(0)), .num_gpus = 32}));
  }
}
BENCHMARK(bench_eplb)
    ->ArgNames({"slots", "log_normal"})
    ->ArgsProduct({{256, 288, 320}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

void bench_joint(benchmark::State& state) {
  const LoadMatrix loads = loads_of(state);
  const Cluster cluster = uniform_cluster(32, static_cast<std::int32_t>(state.range(0)), 1);
  for (auto _ : state) benchmark::DoNotOptimize(plan_joint({&loads, 1}, cluster));
}
BENCHMARK(bench_joint)
    ->ArgNames({"slots", "log_normal"})
    ->ArgsProduct({{256, 288, 320}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace moe::balance
