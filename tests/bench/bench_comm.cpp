// What the measuring itself costs: iterations over the backend that moves nothing, with the
// gathering of the times of every rank that it pretends to have. Below one microsecond is what the
// tool promises.

#include <benchmark/benchmark.h>

#include "lib/comm/backend.hpp"
#include "lib/comm/measure.hpp"
#include "lib/comm/payload.hpp"

namespace moe::comm {
namespace {

void null_iteration(benchmark::State& state) {
  BackendOptions options;
  options.num_ranks = static_cast<int>(state.range(0));
  const std::unique_ptr<Job> job = open_null_job(options);
  MeasureOptions measure;
  measure.num_iterations = 100'000;
  for (auto _ : state) {
    job->run([&](Communicator& communicator) {
      benchmark::DoNotOptimize(measure_exchange(
          communicator, uniform_traffic(communicator.num_ranks(), 1 << 20), measure));
    });
  }
  state.counters["per_iteration"] =
      benchmark::Counter(static_cast<double>(state.iterations() * measure.num_iterations),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(null_iteration)->Arg(2)->Arg(8);

void check_payload_bytes(benchmark::State& state) {
  std::vector<std::byte> bytes(std::size_t{1} << 20);
  fill_payload(bytes, 1, {0, 1, 2});
  for (auto _ : state) benchmark::DoNotOptimize(check_payload(bytes, 1, {0, 1, 2}));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(check_payload_bytes);

}  // namespace
}  // namespace moe::comm
