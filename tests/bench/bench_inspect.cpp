// What inspect does before it prints: headers and index of a checkpoint read, every tensor bound.

#include <benchmark/benchmark.h>

#include "lib/model/bound_model.hpp"
#include "tests/support/sparse_checkpoint.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

void BM_BindCheckpoint(benchmark::State& state, const char* config_name) {
  const test::TempDir directory;
  const test::SparseCheckpoint written = test::write_sparse_checkpoint(
      std::filesystem::path(MOE_SOURCE_DIR "/scenarios/models") / config_name,
      directory / "checkpoint");
  BindOptions headers_only;
  headers_only.scan_values = false;
  for (auto _ : state) {
    const BoundModel model = bind_checkpoint(directory / "checkpoint", headers_only);
    benchmark::DoNotOptimize(model.file_bytes);
  }
  state.counters["tensors"] = static_cast<double>(written.num_tensors);
  state.counters["file_bytes"] = static_cast<double>(written.file_bytes);
}
BENCHMARK_CAPTURE(BM_BindCheckpoint, Mixtral_8x7B, "Mixtral-8x7B-v0.1.json")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_BindCheckpoint, DeepSeek_V3, "DeepSeek-V3.json")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace moe::model
