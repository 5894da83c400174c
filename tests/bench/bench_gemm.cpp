// Matrix products of one expert on one thread, at every level that this machine runs. Two kinds of
// use: many rows with one expert's panels in cache (FLOP/s against the multiply-add peak), and few
// rows over a set of experts larger than the caches (bytes/s against the read bandwidth).

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <benchmark/benchmark.h>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "tests/bench/weights.hpp"

namespace moe::kernels {
namespace {

using bench::Format;
using bench::Int8Activations;
using bench::kFormats;
using bench::Weights;

struct Shape {
  const char* name;
  std::int64_t cols;
  std::int64_t rows;
};

constexpr Shape kShapes[] = {
    {"olmoe_up", 2048, 1024},
    {"olmoe_down", 1024, 2048},
    {"mixtral_up", 4096, 14336},
    {"mixtral_down", 14336, 4096},
};

constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;

void set_rates(benchmark::State& state, const Shape& shape, std::int64_t num_rows,
               std::int64_t weight_bytes) {
  const auto iterations = static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(shape.rows * shape.cols * num_rows);
  state.counters["FLOP/s"] = benchmark::Counter(flops * iterations, benchmark::Counter::kIsRate);
  state.counters["weight_bytes/s"] = benchmark::Counter(
      static_cast<double>(weight_bytes) * iterations, benchmark::Counter::kIsRate);
}

void run_gemm(benchmark::State& state, const KernelTable& table, const Shape& shape,
              const Format& format, ActivationFormat activation, std::int64_t num_rows, bool cold) {
  const std::int64_t bytes = Weights::bytes_of(format, shape.rows, shape.cols);
  const Weights weights(format, shape.rows, shape.cols, cold ? kColdBytes / bytes + 1 : 1);
  const std::int64_t element_bytes = activation == ActivationFormat::kF32 ? 4 : 2;
  AlignedBytes x(num_rows * shape.cols * element_bytes);
  AlignedBuffer<float> y(num_rows * shape.rows);
  std::memset(x.data(), 0x3c, static_cast<std::size_t>(x.size_bytes()));
  GemmArgs args{.weight = weights.view,
                .panel_begin = 0,
                .panel_end = weights.panels,
                .activation_format = activation,
                .x = x.data(),
                .x_stride = shape.cols,
                .num_rows = num_rows,
                .y = y.data(),
                .y_stride = shape.rows};
  const bool is_int8 = activation == ActivationFormat::kInt8;
  std::optional<Int8Activations> codes;
  if (is_int8) codes.emplace(weights.view, num_rows).set(args);
  std::int64_t idx = 0;
  for (auto _ : state) {
    args.weight = weights.copy(idx++);
    (is_int8 ? table.gemm_int8 : table.gemm)(args);
    benchmark::ClobberMemory();
  }
  set_rates(state, shape, num_rows, weights.bytes());
}

void run_gate_up(benchmark::State& state, const KernelTable& table, const Shape& shape,
                 const Format& format, std::int64_t num_rows) {
  const Shape both{shape.name, shape.cols, 2 * shape.rows};
  const Weights weights(format, both.rows, both.cols, 1);
  AlignedBuffer<float> x(num_rows * shape.cols);
  AlignedBuffer<float> h(num_rows * shape.rows);
  std::fill_n(x.data(), x.size(), 0.01F);
  const GateUpArgs args{.weight = weights.view,
                        .pair_begin = 0,
                        .pair_end = weights.panels / 2,
                        .activation_format = ActivationFormat::kF32,
                        .x = x.data(),
                        .x_stride = shape.cols,
                        .num_rows = num_rows,
                        .h = h.data(),
                        .h_stride = shape.rows,
                        .intermediate = shape.rows};
  for (auto _ : state) {
    table.gemm_gate_up(args);
    benchmark::ClobberMemory();
  }
  set_rates(state, both, num_rows, weights.bytes());
}

const char* activation_suffix(ActivationFormat activation) {
  return activation == ActivationFormat::kBf16   ? "_bf16"
         : activation == ActivationFormat::kInt8 ? "_int8"
                                                 : "";
}

void register_gemm(const KernelTable& table, const Shape& shape, const Format& format,
                   ActivationFormat activation) {
  const std::string suffix = "/" + std::string(isa_name(table.isa)) + "/" + shape.name + "/" +
                             format.name + activation_suffix(activation) + "/";
  for (const std::int64_t num_rows : {1, 2, 4, 8, 16, 32, 128, 512}) {
    benchmark::RegisterBenchmark(
        ("gemm" + suffix + std::to_string(num_rows)).c_str(),
        [&table, &shape, &format, activation, num_rows](benchmark::State& state) {
          run_gemm(state, table, shape, format, activation, num_rows, false);
        });
  }
  for (const std::int64_t num_rows : {1, 2, 4, 8, 16, 32}) {
    benchmark::RegisterBenchmark(
        ("gemm_cold" + suffix + std::to_string(num_rows)).c_str(),
        [&table, &shape, &format, activation, num_rows](benchmark::State& state) {
          run_gemm(state, table, shape, format, activation, num_rows, true);
        });
  }
}

void register_level(const KernelTable& table) {
  for (const Shape& shape : kShapes) {
    for (const Format& format : kFormats) {
      register_gemm(table, shape, format, ActivationFormat::kF32);
      if (format.format == WeightFormat::kBf16 ||
          (table.has_coded_bf16 && format.format >= WeightFormat::kFp8)) {
        register_gemm(table, shape, format, ActivationFormat::kBf16);
      }
      if (format.format == WeightFormat::kInt8 || format.format == WeightFormat::kInt4) {
        register_gemm(table, shape, format, ActivationFormat::kInt8);
      }
      for (const std::int64_t num_rows : {1, 8, 48}) {
        benchmark::RegisterBenchmark(
            ("gate_up/" + std::string(isa_name(table.isa)) + "/" + shape.name + "/" + format.name +
             "/" + std::to_string(num_rows))
                .c_str(),
            [&table, &shape, &format, num_rows](benchmark::State& state) {
              run_gate_up(state, table, shape, format, num_rows);
            });
      }
    }
  }
}

// The limits of this machine that the rates above are compared with.

#if defined(__x86_64__)
// Twelve independent chains of multiply-adds in registers: the f32 peak of the AVX2 level.
__attribute__((target("avx2,fma"))) void run_peak_avx2(benchmark::State& state) {
  constexpr int kChains = 12;
  constexpr int kSteps = 1000;
  __m256 sums[kChains];
  for (auto& sum : sums) {
    sum = _mm256_set1_ps(1.0F);
  }
  __m256 factor = _mm256_set1_ps(0.999F);
  benchmark::DoNotOptimize(factor);
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
      for (int chain = 0; chain < kChains; ++chain) {
        sums[chain] = _mm256_fmadd_ps(sums[chain], factor, factor);
      }
    }
  }
  benchmark::DoNotOptimize(sums);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * 8.0 * kChains * kSteps * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
#endif

// A plain sum over memory larger than the caches.
void run_read(benchmark::State& state) {
  AlignedBuffer<std::uint64_t> words(kColdBytes / 8);
  std::fill_n(words.data(), words.size(), 1U);
  for (auto _ : state) {
    std::uint64_t sums[8] = {};
    for (std::int64_t i = 0; i < words.size(); i += 8) {
      for (std::int64_t k = 0; k < 8; ++k) {
        sums[k] += words[i + k];
      }
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * words.size_bytes());
}

}  // namespace
}  // namespace moe::kernels

namespace moe::kernels {
namespace {

// A row as codes in blocks of 32.
void run_quantize(benchmark::State& state, const KernelTable& table) {
  constexpr std::int64_t kCols = 2048;
  AlignedBuffer<float> x(kCols);
  std::fill_n(x.data(), x.size(), 0.3F);
  AlignedBuffer<std::int8_t> codes(kCols);
  AlignedBuffer<float> scales(kCols / 32);
  AlignedBuffer<std::int32_t> sums(kCols / 32);
  for (auto _ : state) {
    table.quantize_row({x.data(), kCols, 32, codes.data(), scales.data(), sums.data()});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}

}  // namespace
}  // namespace moe::kernels

int main(int argc, char** argv) {
  using namespace moe::kernels;
  benchmark::RegisterBenchmark("limit/read", run_read);
#if defined(__x86_64__)
  if (isa_supported(Isa::kAvx2)) {
    benchmark::RegisterBenchmark("limit/fma_avx2", run_peak_avx2);
  }
#endif
  for (int level = 0; level < kNumIsas; ++level) {
    const KernelTable* table = kernel_table(static_cast<Isa>(level));
    if (table != nullptr) {
      register_level(*table);
      benchmark::RegisterBenchmark(
          ("quantize_row/" + std::string(isa_name(table->isa))).c_str(),
          [table](benchmark::State& state) { run_quantize(state, *table); });
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
