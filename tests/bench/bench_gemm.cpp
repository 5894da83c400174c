// Matrix products of one expert on one thread, at every level that this machine runs. Two kinds of
// use: many rows with one expert's panels in cache (FLOP/s against the multiply-add peak), and few
// rows over a set of experts larger than the caches (bytes/s against the read bandwidth).

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <benchmark/benchmark.h>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"

namespace moe::kernels {
namespace {

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

constexpr std::pair<const char*, WeightFormat> kFormats[] = {{"f32", WeightFormat::kF32},
                                                             {"f16", WeightFormat::kF16},
                                                             {"bf16", WeightFormat::kBf16},
                                                             {"fp8", WeightFormat::kFp8},
                                                             {"mxfp4", WeightFormat::kMxfp4}};

constexpr std::int64_t kFp8BlockCols = 128;
constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;

// Small positive weights in any format: every byte 0x2f is a normal number of modest size.
struct Weights {
  Weights(WeightFormat format, const Shape& shape, std::int64_t num_copies)
      : panels(shape.rows / kPanelRows),
        stride(panel_bytes(format, shape.cols, kFp8BlockCols)),
        copies(num_copies),
        storage(panels * stride * copies) {
    std::memset(storage.data(), 0x2f, static_cast<std::size_t>(storage.size_bytes()));
    view = {.data = storage.data(),
            .format = format,
            .rows = shape.rows,
            .cols = shape.cols,
            .block_cols = kFp8BlockCols,
            .panel_stride_bytes = stride};
  }
  PackedMatrix copy(std::int64_t idx) const {
    PackedMatrix out = view;
    out.data += idx % copies * panels * stride;
    return out;
  }
  std::int64_t bytes() const { return panels * stride; }

  std::int64_t panels;
  std::int64_t stride;
  std::int64_t copies;
  AlignedBytes storage;
  PackedMatrix view;
};

void set_rates(benchmark::State& state, const Shape& shape, std::int64_t num_rows,
               std::int64_t weight_bytes) {
  const auto iterations = static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(shape.rows * shape.cols * num_rows);
  state.counters["FLOP/s"] = benchmark::Counter(flops * iterations, benchmark::Counter::kIsRate);
  state.counters["weight_bytes/s"] = benchmark::Counter(
      static_cast<double>(weight_bytes) * iterations, benchmark::Counter::kIsRate);
}

void run_gemm(benchmark::State& state, const KernelTable& table, const Shape& shape,
              WeightFormat format, ActivationFormat activation, std::int64_t num_rows, bool cold) {
  const std::int64_t bytes = panel_bytes(format, shape.cols, kFp8BlockCols) * shape.rows / 16;
  const Weights weights(format, shape, cold ? kColdBytes / bytes + 1 : 1);
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
  std::int64_t idx = 0;
  for (auto _ : state) {
    args.weight = weights.copy(idx++);
    table.gemm(args);
    benchmark::ClobberMemory();
  }
  set_rates(state, shape, num_rows, weights.bytes());
}

void run_gate_up(benchmark::State& state, const KernelTable& table, const Shape& shape,
                 WeightFormat format, std::int64_t num_rows) {
  const Shape both{shape.name, shape.cols, 2 * shape.rows};
  const Weights weights(format, both, 1);
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

void register_level(const KernelTable& table) {
  const std::string level = isa_name(table.isa);
  for (const Shape& shape : kShapes) {
    for (const auto& [format_name, format] : kFormats) {
      const std::string suffix = "/" + level + "/" + shape.name + "/" + format_name;
      for (const std::int64_t num_rows : {1, 2, 3, 6, 12, 48, 512}) {
        benchmark::RegisterBenchmark(
            ("gemm" + suffix + "/" + std::to_string(num_rows)).c_str(),
            [&table, &shape, format = format, num_rows](benchmark::State& state) {
              run_gemm(state, table, shape, format, ActivationFormat::kF32, num_rows, false);
            });
      }
      for (const std::int64_t num_rows : {1, 2, 4, 8}) {
        benchmark::RegisterBenchmark(
            ("gemm_cold" + suffix + "/" + std::to_string(num_rows)).c_str(),
            [&table, &shape, format = format, num_rows](benchmark::State& state) {
              run_gemm(state, table, shape, format, ActivationFormat::kF32, num_rows, true);
            });
      }
      benchmark::RegisterBenchmark(("gate_up" + suffix + "/48").c_str(),
                                   [&table, &shape, format = format](benchmark::State& state) {
                                     run_gate_up(state, table, shape, format, 48);
                                   });
    }
    for (const std::int64_t num_rows : {1, 48, 512}) {
      benchmark::RegisterBenchmark(
          ("gemm/" + level + "/" + shape.name + "/bf16_bf16/" + std::to_string(num_rows)).c_str(),
          [&table, &shape, num_rows](benchmark::State& state) {
            run_gemm(state, table, shape, WeightFormat::kBf16, ActivationFormat::kBf16, num_rows,
                     false);
          });
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
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
