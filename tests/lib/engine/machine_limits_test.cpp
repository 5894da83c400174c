// Goal: the limits count what they say, and keep the states of the cores apart. Method: clocks that
// move by hand and a width sampler made for the test, so that every figure can be worked on paper.

#include "lib/engine/machine_limits.hpp"

#include <array>
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/aligned_buffer.hpp"
#include "lib/engine/roofline_sampler.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::Isa;
using kernels::WeightFormat;

// Every look takes a quarter of a second.
class SlowClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override { return 0.25 * ticks_++; }

 private:
  mutable int ticks_ = 0;
};

TEST(RateByState, KeepsTheStatesApart) {
  RateByState rate;
  rate.add(10.0, CoreState::kFree);
  rate.add(4.0, CoreState::kShared);
  rate.add(12.0, CoreState::kUnknown);
  rate.add(5.0, CoreState::kShared);
  EXPECT_EQ(rate.best, 12.0);
  EXPECT_EQ(rate.best_free, 10.0);
  EXPECT_EQ(rate.best_shared, 5.0);
  EXPECT_EQ(rate.num_samples, 4);
  EXPECT_EQ(rate.num_free, 1);
  EXPECT_EQ(rate.num_shared, 2);
}

TEST(MachineLimits, EverySampleHasAState) {
  // The core is shared from some moment on.
  int num_readings = 0;
  CoreWatch watch([&num_readings] { return WidthReading{++num_readings < 70 ? 3.6 : 2.4, 0}; });
  LimitsOptions options;
  options.thread_counts = {1};
  options.l2_bytes = 64 << 10;
  options.peaks = {{Isa::kScalar, WeightFormat::kInt4, ActivationFormat::kF32}};
  options.seconds_per_figure = 1e-9;
  const SlowClock clock;
  NullProgress progress;
  const MachineLimits limits = measure_machine_limits(options, watch, clock, progress, Interrupt{});
  ASSERT_EQ(limits.bandwidth.size(), 1U);
  ASSERT_EQ(limits.peaks.size(), 1U);
  // 64 readings of the calibration, then one before the first sample and one after each.
  const RateByState& read = limits.bandwidth.front().bytes_per_s;
  EXPECT_EQ(read.num_samples, 3);
  EXPECT_EQ(read.num_free, 3);
  EXPECT_EQ(read.best, 8.0 * (1 << 20) / 0.25);
  const RateByState& peak = limits.peaks.front().flops_per_s;
  EXPECT_EQ(peak.num_samples, 5 * 3);
  EXPECT_EQ(peak.num_shared + peak.num_free, peak.num_samples);
  EXPECT_GE(peak.num_shared, 14);
  EXPECT_EQ(limits.find(options.peaks.front(), 1), &limits.peaks.front());
  EXPECT_EQ(limits.find(options.peaks.front(), 2), nullptr);
}

TEST(PeakCases, HoldEveryPairThatALevelMultiplies) {
  std::set<std::pair<Isa, WeightFormat>> with_f32;
  for (const PeakCase& of : all_peak_cases()) {
    EXPECT_TRUE(can_multiply(of));
    ProductLoop loop(of, 1);
    loop.run(0, 1);
    loop.run(0, ProductLoop::kMaxTokens);
    if (of.activations == ActivationFormat::kF32) with_f32.insert({of.isa, of.weights});
  }
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16, WeightFormat::kFp8,
        WeightFormat::kMxfp4, WeightFormat::kInt8, WeightFormat::kInt4}) {
    EXPECT_TRUE(with_f32.contains({Isa::kScalar, format}));
    EXPECT_TRUE(with_f32.contains({kernels::best_supported_isa(), format}));
    const PeakCase int8 = {Isa::kScalar, format, ActivationFormat::kInt8};
    EXPECT_EQ(can_multiply(int8), format == WeightFormat::kInt8 || format == WeightFormat::kInt4);
  }
}

TEST(MultiplyInstruction, IsTheOneOfTheLevelAndTheMode) {
#if defined(__x86_64__)
  const auto name = [](Isa isa, ActivationFormat mode) {
    return std::string(multiply_instruction(isa, mode)->name);
  };
  EXPECT_EQ(name(Isa::kAvx2, ActivationFormat::kF32), "vfmadd231ps ymm");
  EXPECT_EQ(name(Isa::kAvx2, ActivationFormat::kBf16), "vfmadd231ps ymm");
  EXPECT_EQ(name(Isa::kAvx512, ActivationFormat::kBf16), "vfmadd231ps zmm");
  EXPECT_EQ(name(Isa::kAvx512Bf16, ActivationFormat::kF32), "vfmadd231ps zmm");
  EXPECT_EQ(name(Isa::kAvx512Bf16, ActivationFormat::kBf16), "vdpbf16ps zmm");
  EXPECT_EQ(name(Isa::kAmx, ActivationFormat::kBf16), "tdpbf16ps");
  EXPECT_EQ(name(Isa::kAvx2, ActivationFormat::kInt8), "vpmaddwd vpaddd ymm");
  EXPECT_EQ(name(Isa::kAvx512, ActivationFormat::kInt8),
            kernels::vnni_supported() ? "vpdpbusd zmm" : "vpmaddwd vpaddd zmm");
  EXPECT_EQ(name(Isa::kAvx512Bf16, ActivationFormat::kInt8), "vpdpbusd zmm");
  EXPECT_EQ(name(Isa::kAmx, ActivationFormat::kInt8), "tdpbssd");
#endif
  EXPECT_EQ(multiply_instruction(Isa::kScalar, ActivationFormat::kF32), nullptr);
  for (const MultiplyInstruction& instruction : multiply_instructions()) {
    if (kernels::isa_supported(instruction.isa)) instruction.call();
    EXPECT_GT(instruction.ops_per_call, 0.0);
  }
}

TEST(RooflineSampler, CountsTheBytesAndOperationsOfASample) {
  CoreWatch watch([] { return WidthReading{3.6, 0}; });
  for (const int num_threads : {1, 2}) {
    ThreadPool pool(num_threads);
    // 80 KiB: both threads read their half 4 MiB long; 33 MiB: a slice of 16 MiB at most.
    for (const std::int64_t size : {std::int64_t{80} << 10, std::int64_t{33} << 20}) {
      const AlignedBytes weights(size);
      const SlowClock clock;
      RooflineSampler sampler(pool, {weights.data(), static_cast<std::size_t>(size)},
                              {Isa::kScalar, WeightFormat::kBf16, ActivationFormat::kF32}, watch,
                              clock);
      EXPECT_STREQ(sampler.peak_name(), "kernel");
      for (int i = 0; i < 4; ++i) {
        const RooflineSample sample = sampler.sample();
        const double bytes = sample.read_bytes_per_s * 0.25 / num_threads;
        EXPECT_GT(bytes, (4 << 20) - (80 << 10));  // passes are whole
        EXPECT_LE(bytes, 17 << 20);
        // One call of the product fills the time: it takes a quarter of a second by this clock.
        EXPECT_EQ(sample.ops_per_s, ProductLoop::flops(16) * num_threads / 0.25);
        for (const CoreProbe& probe : sample.probes) {
          EXPECT_EQ(probe.threads.size(), static_cast<std::size_t>(num_threads));
        }
      }
    }
  }
}

TEST(RooflineSampler, NoWeightsGiveNoBandwidth) {
  CoreWatch watch([] { return WidthReading{3.6, 0}; });
  ThreadPool pool(1);
  const SlowClock clock;
  RooflineSampler sampler(pool, {}, {Isa::kScalar, WeightFormat::kF32, ActivationFormat::kF32},
                          watch, clock);
  const RooflineSample sample = sampler.sample();
  EXPECT_EQ(sample.read_bytes_per_s, 0.0);
  EXPECT_GT(sample.ops_per_s, 0.0);
}

}  // namespace
}  // namespace moe::engine
