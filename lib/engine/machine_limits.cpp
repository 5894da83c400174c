#include "lib/engine/machine_limits.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
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
// The best number of tokens depends on the level's register tile; all are tried.
constexpr std::array<std::int32_t, 5> kTokenCounts = {8, 12, 16, 24, ProductLoop::kMaxTokens};

// A single sample may fall on a moment when something else has the memory bus.
constexpr std::int32_t kMinSamples = 3;

// Whether its cores were free is known only at the end, when the widest reading is.
struct TimedSample {
  double duration_s = 0.0;
  std::array<CoreProbe, 2> around;
};

// Of one figure.
struct SampleSet {
  std::vector<TimedSample> samples;
  double work = 0.0;  // of one sample: bytes or operations
  RateByState* target = nullptr;
};

class LimitsRun {
 public:
  LimitsRun(const LimitsOptions& options, CoreWatch& watch, const Clock& clock, Progress& progress,
            const Interrupt& interrupt)
      : options_(options),
        watch_(watch),
        clock_(clock),
        progress_(progress),
        interrupt_(interrupt) {}

  MachineLimits run();

 private:
  void measure_read(MemoryLevel level, std::int64_t bytes_per_thread, ThreadPool& pool);
  void measure_peak(const PeakCase& of, ThreadPool& pool);
  void measure_instruction(const MultiplyInstruction& instruction, ThreadPool& pool);
  void rate_samples();
  void count_figure() { progress_.update(++num_done_); }
  // Runs body() again and again for about `seconds`, the cores probed before and after each.
  template <typename Body>
  std::vector<TimedSample> take_samples(ThreadPool& pool, double seconds, Body&& body);

  const LimitsOptions& options_;
  CoreWatch& watch_;
  const Clock& clock_;
  Progress& progress_;
  const Interrupt& interrupt_;
  MachineLimits limits_;
  std::vector<SampleSet> sets_;
  std::int64_t num_done_ = 0;
};

template <typename Body>
std::vector<TimedSample> LimitsRun::take_samples(ThreadPool& pool, double seconds, Body&& body) {
  std::vector<TimedSample> samples;
  CoreProbe before;
  watch_.probe(pool, before);
  const double begin_s = clock_.now_s();
  for (;;) {
    TimedSample sample;
    sample.around[0] = before;
    const double start_s = clock_.now_s();
    body();
    const double end_s = clock_.now_s();
    watch_.probe(pool, sample.around[1]);
    before = sample.around[1];
    sample.duration_s = end_s - start_s;
    samples.push_back(std::move(sample));
    const bool is_enough =
        end_s - begin_s >= seconds && std::ssize(samples) >= std::ptrdiff_t{kMinSamples};
    if (is_enough || interrupt_.requested()) return samples;
  }
}

void LimitsRun::measure_read(MemoryLevel level, std::int64_t bytes_per_thread, ThreadPool& pool) {
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
  sample();  // warm
  BandwidthLimit& limit = limits_.bandwidth.emplace_back();
  limit.level = level;
  limit.num_threads = num_threads;
  limit.buffer_bytes = pass_bytes * num_threads;
  const double sample_bytes = static_cast<double>(pass_bytes * num_passes * num_threads);
  sets_.push_back(
      {take_samples(pool, options_.seconds_per_figure, sample), sample_bytes, &limit.bytes_per_s});
}

void LimitsRun::measure_peak(const PeakCase& of, ThreadPool& pool) {
  ProductLoop loop(of, pool.num_threads());
  PeakLimit& limit = limits_.peaks.emplace_back();
  limit.of = of;
  limit.num_threads = pool.num_threads();
  // About 2 million operations a sample on the slowest level, 20 on the others.
  const std::int64_t num_calls = of.isa == Isa::kScalar ? 4 : 40;
  double best_rate = 0.0;
  for (const std::int32_t num_tokens : kTokenCounts) {
    const auto sample = [&] {
      pool.run([&](int thread_idx) {
        for (std::int64_t call = 0; call < num_calls; ++call) loop.run(thread_idx, num_tokens);
      });
    };
    SampleSet set;
    set.samples = take_samples(
        pool, options_.seconds_per_figure / static_cast<double>(kTokenCounts.size()), sample);
    set.work = ProductLoop::flops(num_tokens) * static_cast<double>(num_calls * pool.num_threads());
    set.target = &limit.flops_per_s;
    for (const TimedSample& one : set.samples) {
      if (one.duration_s <= 0.0 || set.work / one.duration_s <= best_rate) continue;
      best_rate = set.work / one.duration_s;
      limit.num_rows = num_tokens;
    }
    sets_.push_back(std::move(set));
  }
}

void LimitsRun::measure_instruction(const MultiplyInstruction& instruction, ThreadPool& pool) {
  constexpr int kCallsPerSample = 50;  // of a few microseconds each
  InstructionLimit& limit = limits_.instructions.emplace_back();
  limit.instruction = &instruction;
  limit.num_threads = pool.num_threads();
  const auto sample = [&] {
    pool.run([&](int) {
      for (int call = 0; call < kCallsPerSample; ++call) instruction.call();
    });
  };
  const double sample_ops = instruction.ops_per_call * kCallsPerSample * pool.num_threads();
  sets_.push_back(
      {take_samples(pool, options_.seconds_per_figure, sample), sample_ops, &limit.ops_per_s});
}

void LimitsRun::rate_samples() {
  for (const SampleSet& set : sets_) {
    for (const TimedSample& sample : set.samples) {
      if (sample.duration_s <= 0.0) continue;
      set.target->add(set.work / sample.duration_s, watch_.reference().state(sample.around));
    }
  }
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

const PeakLimit* MachineLimits::find(const PeakCase& of, std::int32_t num_threads) const {
  for (const PeakLimit& limit : peaks) {
    if (limit.of == of && limit.num_threads == num_threads) return &limit;
  }
  return nullptr;
}

void RateByState::add(double rate, CoreState state) {
  best = std::max(best, rate);
  ++num_samples;
  if (state == CoreState::kFree) {
    best_free = std::max(best_free, rate);
    ++num_free;
  } else if (state == CoreState::kShared) {
    best_shared = std::max(best_shared, rate);
    ++num_shared;
  }
}

std::vector<PeakCase> all_peak_cases() {
  std::vector<PeakCase> cases;
  for (int level = 0; level < kernels::kNumIsas; ++level) {
    const Isa isa = static_cast<Isa>(level);
    if (kernels::kernel_table(isa) == nullptr) continue;
    for (const ActivationFormat activations :
         {ActivationFormat::kF32, ActivationFormat::kBf16, ActivationFormat::kInt8}) {
      for (const WeightFormat weights :
           {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16, WeightFormat::kFp8,
            WeightFormat::kMxfp4, WeightFormat::kInt8, WeightFormat::kInt4}) {
        const PeakCase of = {isa, weights, activations};
        if (can_multiply(of)) cases.push_back(of);
      }
    }
  }
  return cases;
}

std::int64_t dram_buffer_bytes(std::int64_t l3_bytes, std::int64_t available_bytes) {
  const std::int64_t wanted = std::clamp<std::int64_t>(4 * l3_bytes, 256 * kMiB, 4096 * kMiB);
  return available_bytes > 0 ? std::min(wanted, available_bytes / 4) : wanted;
}

MachineLimits LimitsRun::run() {
  const double begin_s = clock_.now_s();
  std::vector<const MultiplyInstruction*> instructions;
  for (const MultiplyInstruction& instruction : multiply_instructions()) {
    if (options_.has_instructions && kernels::isa_supported(instruction.isa)) {
      instructions.push_back(&instruction);
    }
  }
  std::size_t num_reads = 0;
  for (const std::int32_t num_threads : options_.thread_counts) {
    num_reads += read_cases(options_, num_threads).size();
  }
  // The sets point at their figures.
  const std::size_t num_counts = options_.thread_counts.size();
  limits_.bandwidth.reserve(num_reads);
  limits_.peaks.reserve(num_counts * options_.peaks.size());
  limits_.instructions.reserve(num_counts * instructions.size());
  progress_.begin("limits",
                  static_cast<std::int64_t>(
                      num_reads + num_counts * (options_.peaks.size() + instructions.size())),
                  "figures");
  for (const std::int32_t num_threads : options_.thread_counts) {
    ThreadPool pool(num_threads);
    watch_.calibrate(pool);
    for (const ReadCase& of : read_cases(options_, num_threads)) {
      if (interrupt_.requested()) break;
      measure_read(of.level, of.bytes_per_thread, pool);
      count_figure();
    }
    for (const MultiplyInstruction* instruction : instructions) {
      if (interrupt_.requested()) break;
      measure_instruction(*instruction, pool);
      count_figure();
    }
    for (const PeakCase& of : options_.peaks) {
      if (interrupt_.requested()) break;
      measure_peak(of, pool);
      count_figure();
    }
  }
  progress_.end();
  rate_samples();
  limits_.is_partial = interrupt_.requested();
  limits_.wall_s = clock_.now_s() - begin_s;
  return std::move(limits_);
}

MachineLimits measure_machine_limits(const LimitsOptions& options, CoreWatch& watch,
                                     const Clock& clock, Progress& progress,
                                     const Interrupt& interrupt) {
  return LimitsRun(options, watch, clock, progress, interrupt).run();
}

}  // namespace moe::engine
