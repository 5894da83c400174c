// Replaying residency: accesses per second of one layer's cache, skewed accesses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "lib/base/rng.hpp"
#include "lib/tiering/expert_cache.hpp"

namespace moe::tiering {
namespace {

constexpr std::int32_t kExperts = 256;

// Squares of uniform numbers: the first quarter of the experts gets half of the accesses.
std::vector<std::int32_t> accesses() {
  Rng rng(1);
  std::vector<std::int32_t> experts(1 << 20);
  for (std::int32_t& expert : experts) {
    const double u = rng.next_uniform();
    expert = static_cast<std::int32_t>(u * u * kExperts);
  }
  return experts;
}

template <typename Cache>
void bench_cache(benchmark::State& state) {
  const std::vector<std::int32_t> experts = accesses();
  for (auto _ : state) {
    Cache cache(kExperts, static_cast<std::int32_t>(state.range(0)));
    cache.access(experts);
    benchmark::DoNotOptimize(cache.counts().num_hits);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(experts.size()));
}
BENCHMARK(bench_cache<LruCache>)->Name("lru")->ArgName("slots")->Arg(16)->Arg(64)->Arg(128);
BENCHMARK(bench_cache<LfuCache>)->Name("lfu")->ArgName("slots")->Arg(16)->Arg(64)->Arg(128);

void bench_belady(benchmark::State& state) {
  const std::vector<std::int32_t> experts = accesses();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        belady(experts, kExperts, static_cast<std::int32_t>(state.range(0))).num_hits);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(experts.size()));
}
BENCHMARK(bench_belady)->Name("belady")->ArgName("slots")->Arg(16)->Arg(64)->Arg(128);

}  // namespace
}  // namespace moe::tiering
