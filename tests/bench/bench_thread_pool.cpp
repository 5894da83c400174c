// What it costs to hand work to the threads and to wait for them: the serial part of every region
// of a forward pass. With more threads than cores it shows what a preempted worker costs.

#include <chrono>
#include <cstdint>
#include <thread>

#include <benchmark/benchmark.h>

#include "lib/base/thread_pool.hpp"

namespace {

using moe::ThreadPool;

void empty_region(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.run([](int thread_idx) { benchmark::DoNotOptimize(thread_idx); });
  }
}

// 64 items of nothing, from the one counter.
void empty_items(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.for_each(64, [](std::int64_t index, int) { benchmark::DoNotOptimize(index); });
  }
}

// After a pause that is longer than the workers spin: they have to be woken.
void region_after_sleep(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state.ResumeTiming();
    pool.run([](int thread_idx) { benchmark::DoNotOptimize(thread_idx); });
  }
}

BENCHMARK(empty_region)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK(empty_items)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK(region_after_sleep)->Arg(2)->Iterations(500)->UseRealTime();

}  // namespace
