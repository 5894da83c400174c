#include "lib/engine/machine_limits.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "lib/base/aligned_buffer.hpp"
#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/engine/read_loop.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::Isa;
using kernels::WeightFormat;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kWordsPerStep = 32;
// A matrix whose panels and rows stay in the L1 and L2 of any core we know: 32 KiB in f32.
constexpr std::int64_t kPeakRows = 32;
constexpr std::int64_t kPeakCols = 256;
// The best number of tokens depends on the level's register tile; all are tried.
constexpr std::array<std::int32_t, 5> kTokenCounts = {8, 12, 16, 24, 48};
constexpr std::int64_t kMaxTokens = 48;

// A single sample may fall on a moment when something else has the memory bus.
constexpr std::int32_t kMinSamples = 3;

// Runs body() again and again for about `seconds`; returns the shortest time of one call.
template <typename Body>
double best_time_s(double seconds, const Clock& clock, const Interrupt& interrupt, Body&& body,
                   std::int32_t* num_samples) {
  double best_s = 0.0;
  const double begin_s = clock.now_s();
  *num_samples = 0;
  for (;;) {
    const double start_s = clock.now_s();
    body();
    const double end_s = clock.now_s();
    const double sample_s = end_s - start_s;
    if (sample_s > 0.0 && (best_s == 0.0 || sample_s < best_s)) best_s = sample_s;
    ++*num_samples;
    const bool is_enough = end_s - begin_s >= seconds && *num_samples >= kMinSamples;
    if (is_enough || interrupt.requested()) return best_s;
  }
}

BandwidthLimit measure_read(MemoryLevel level, std::int64_t bytes_per_thread, ThreadPool& pool,
                            const LimitsOptions& options, const Clock& clock,
                            const Interrupt& interrupt) {
  const std::int32_t num_threads = pool.num_threads();
  const std::int64_t words =
      align_up(div_ceil(bytes_per_thread, std::int64_t{sizeof(std::uint64_t)}), kWordsPerStep);
  std::vector<AlignedBuffer<std::uint64_t>> buffers(static_cast<std::size_t>(num_threads));
  // Each thread touches its own buffer first, which places the pages near it.
  pool.run([&](int thread_idx) {
    AlignedBuffer<std::uint64_t>& buffer = buffers[static_cast<std::size_t>(thread_idx)];
    buffer = AlignedBuffer<std::uint64_t>(words);
    for (std::int64_t i = 0; i < words; ++i) buffer[i] = static_cast<std::uint64_t>(i);
  });
  const std::int64_t pass_bytes = words * std::int64_t{sizeof(std::uint64_t)};
  // One sample reads at least 8 MiB a thread, so that the barrier does not count.
  const std::int64_t num_passes = std::max<std::int64_t>(1, div_ceil(8 * kMiB, pass_bytes));
  std::atomic<std::uint64_t> sink{0};
  const auto sample = [&] {
    pool.run([&](int thread_idx) {
      const AlignedBuffer<std::uint64_t>& buffer = buffers[static_cast<std::size_t>(thread_idx)];
      std::uint64_t sum = 0;
      for (std::int64_t pass = 0; pass < num_passes; ++pass) sum += sum_words(buffer.data(), words);
      sink.fetch_add(sum, std::memory_order_relaxed);
    });
  };
  BandwidthLimit limit;
  limit.level = level;
  limit.num_threads = num_threads;
  limit.buffer_bytes = pass_bytes * num_threads;
  sample();  // warm
  const double best_s =
      best_time_s(options.seconds_per_figure, clock, interrupt, sample, &limit.num_samples);
  const std::int64_t sample_bytes = pass_bytes * num_passes * num_threads;
  if (best_s > 0.0) limit.bytes_per_s = static_cast<double>(sample_bytes) / best_s;
  return limit;
}

// Operands of one thread's product: zero weights, which no kernel treats apart.
struct PeakOperands {
  PeakOperands(const PeakCase& of)
      : weights(kernels::panel_bytes(of.weights, kPeakCols, kPeakCols) *
                div_exact(kPeakRows, kernels::kPanelRows)),
        x(kMaxTokens * kPeakCols),
        y(kMaxTokens * kPeakRows) {}

  AlignedBytes weights;
  AlignedBuffer<float> x;  // large enough for bf16, too
  AlignedBuffer<float> y;
};

kernels::GemmArgs gemm_args(const PeakCase& of, PeakOperands& operands, std::int32_t num_tokens) {
  kernels::GemmArgs args;
  args.weight.data = operands.weights.data();
  args.weight.format = of.weights;
  args.weight.rows = kPeakRows;
  args.weight.cols = kPeakCols;
  args.weight.block_cols = kPeakCols;
  args.weight.panel_stride_bytes = kernels::panel_bytes(of.weights, kPeakCols, kPeakCols);
  args.panel_end = div_exact(kPeakRows, kernels::kPanelRows);
  args.activation_format = of.activations;
  args.x = operands.x.data();
  args.x_stride = kPeakCols;
  args.num_rows = num_tokens;
  args.y = operands.y.data();
  args.y_stride = kPeakRows;
  return args;
}

PeakLimit measure_peak(const PeakCase& of, ThreadPool& pool, const LimitsOptions& options,
                       const Clock& clock, const Interrupt& interrupt) {
  const kernels::KernelTable* table = kernels::kernel_table(of.isa);
  MOE_CHECK(table != nullptr);
  std::vector<PeakOperands> operands;
  for (int i = 0; i < pool.num_threads(); ++i) operands.emplace_back(of);
  PeakLimit limit;
  limit.isa = of.isa;
  limit.weights = of.weights;
  limit.activations = of.activations;
  limit.num_threads = pool.num_threads();
  for (const std::int32_t num_tokens : kTokenCounts) {
    const double call_flops = 2.0 * static_cast<double>(kPeakRows * kPeakCols * num_tokens);
    // About 2 million operations a sample on the slowest level, 20 on the others.
    const std::int64_t num_calls = of.isa == Isa::kScalar ? 4 : 40;
    const auto sample = [&] {
      pool.run([&](int thread_idx) {
        const kernels::GemmArgs args =
            gemm_args(of, operands[static_cast<std::size_t>(thread_idx)], num_tokens);
        for (std::int64_t call = 0; call < num_calls; ++call) table->gemm(args);
      });
    };
    std::int32_t num_samples = 0;
    const double best_s =
        best_time_s(options.seconds_per_figure / static_cast<double>(kTokenCounts.size()), clock,
                    interrupt, sample, &num_samples);
    if (best_s <= 0.0) continue;
    const double flops_per_s =
        call_flops * static_cast<double>(num_calls * pool.num_threads()) / best_s;
    if (flops_per_s > limit.flops_per_s) {
      limit.flops_per_s = flops_per_s;
      limit.num_rows = num_tokens;
    }
  }
  return limit;
}

struct ReadCase {
  MemoryLevel level;
  std::int64_t bytes_per_thread;
};

std::vector<ReadCase> read_cases(const LimitsOptions& options, std::int32_t num_threads) {
  std::vector<ReadCase> cases;
  // Half of a cache leaves room for whatever else is in it.
  if (options.l2_bytes > 0) cases.push_back({MemoryLevel::kL2, options.l2_bytes / 2});
  if (options.l3_bytes > options.l2_bytes * num_threads) {
    cases.push_back(
        {MemoryLevel::kL3, std::max(options.l3_bytes / 2 / num_threads, options.l2_bytes)});
  }
  if (options.dram_buffer_bytes > 0) {
    cases.push_back({MemoryLevel::kDram, options.dram_buffer_bytes / num_threads});
  }
  return cases;
}

}  // namespace

const char* memory_level_name(MemoryLevel level) {
  switch (level) {
    case MemoryLevel::kL2:
      return "L2";
    case MemoryLevel::kL3:
      return "L3";
    case MemoryLevel::kDram:
      return "DRAM";
  }
  MOE_CHECK(false);
  return "";
}

const BandwidthLimit* MachineLimits::find(MemoryLevel level, std::int32_t num_threads) const {
  for (const BandwidthLimit& limit : bandwidth) {
    if (limit.level == level && limit.num_threads == num_threads) return &limit;
  }
  return nullptr;
}

const PeakLimit* MachineLimits::find(Isa isa, WeightFormat weights, ActivationFormat activations,
                                     std::int32_t num_threads) const {
  for (const PeakLimit& limit : peaks) {
    if (limit.isa == isa && limit.weights == weights && limit.activations == activations &&
        limit.num_threads == num_threads) {
      return &limit;
    }
  }
  return nullptr;
}

std::vector<PeakCase> all_peak_cases() {
  std::vector<PeakCase> cases;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (kernels::kernel_table(isa) == nullptr) continue;
    for (const WeightFormat weights : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16,
                                       WeightFormat::kFp8, WeightFormat::kMxfp4}) {
      cases.push_back({isa, weights, ActivationFormat::kF32});
    }
    cases.push_back({isa, WeightFormat::kBf16, ActivationFormat::kBf16});
  }
  return cases;
}

std::int64_t dram_buffer_bytes(std::int64_t l3_bytes, std::int64_t available_bytes) {
  const std::int64_t wanted = std::clamp<std::int64_t>(4 * l3_bytes, 256 * kMiB, 4096 * kMiB);
  return available_bytes > 0 ? std::min(wanted, available_bytes / 4) : wanted;
}

MachineLimits measure_machine_limits(const LimitsOptions& options, const Clock& clock,
                                     Progress& progress, const Interrupt& interrupt) {
  MachineLimits limits;
  const double begin_s = clock.now_s();
  std::int64_t num_figures = 0;
  for (const std::int32_t num_threads : options.thread_counts) {
    num_figures +=
        static_cast<std::int64_t>(read_cases(options, num_threads).size() + options.peaks.size());
  }
  progress.begin("limits", num_figures, "figures");
  std::int64_t done = 0;
  for (const std::int32_t num_threads : options.thread_counts) {
    ThreadPool pool(num_threads);
    for (const ReadCase& of : read_cases(options, num_threads)) {
      if (interrupt.requested()) break;
      limits.bandwidth.push_back(
          measure_read(of.level, of.bytes_per_thread, pool, options, clock, interrupt));
      progress.update(++done);
    }
    for (const PeakCase& of : options.peaks) {
      if (interrupt.requested()) break;
      limits.peaks.push_back(measure_peak(of, pool, options, clock, interrupt));
      progress.update(++done);
    }
  }
  progress.end();
  limits.is_partial = interrupt.requested();
  limits.wall_s = clock.now_s() - begin_s;
  return limits;
}

}  // namespace moe::engine
