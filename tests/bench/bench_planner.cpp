// A whole sweep: one model, ten GPU types, all legal layouts up to 512 GPUs, twenty batch sizes, on
// one thread. Bytes of the process are reported so that growth shows.

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "lib/planner/sweep.hpp"

namespace moe::planner {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(std::string(MOE_SOURCE_DIR) + "/scenarios/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Pages of this process that are in memory.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * 4096.0;
}

void sweep_everything(benchmark::State& state, const std::string& name) {
  const model::Architecture architecture =
      model::parse_architecture(read_text("models/" + name + ".json"), name);
  const HardwareFile hardware = parse_hardware(read_text("hardware.json"), "hardware.json");
  const MeasuredTimes measured = {
      parse_kernel_table(read_text("measured/kernels.json"), "kernels.json"),
      parse_collective_table(read_text("measured/collectives.json"), "collectives.json"),
      parse_step_constants(read_text("measured/step_constants.json"), "step_constants.json")};
  SweepSpace space;
  for (const char* id : {"a100-80-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm",
                         "gb200-nvl72", "gb300-nvl72", "l40s", "rtxpro6000", "h20"}) {
    space.gpus.push_back(&find_accelerator(hardware, id));
  }
  space.max_gpus = 512;
  space.batches = {1,  2,   4,   8,   12,  16,  24,  32,  48,  64,
                   96, 128, 160, 192, 256, 320, 384, 448, 512, 1024};
  SweepResult result;
  const double before = resident_bytes();
  for (auto _ : state) {
    result = sweep(architecture, space, measured);
    benchmark::DoNotOptimize(result.front.data());
  }
  state.counters["layouts"] = static_cast<double>(result.num_layouts);
  state.counters["points"] = static_cast<double>(result.num_points);
  state.counters["front"] = static_cast<double>(result.front.size());
  state.counters["grown_bytes"] = resident_bytes() - before;
}

BENCHMARK_CAPTURE(sweep_everything, deepseek_v3, "DeepSeek-V3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_everything, qwen3_235b, "Qwen3-235B-A22B")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sweep_everything, mixtral_8x7b, "Mixtral-8x7B-v0.1")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace moe::planner

BENCHMARK_MAIN();
