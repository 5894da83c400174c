// Goal: levels have names, are detected and chosen consistently, and the self-test sees a fault in
// any function. Method: tables with one function exchanged for a wrong one.

#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cpu/self_test.hpp"
#include "tests/kernels/levels.hpp"

namespace moe::kernels {
namespace {

TEST(Isa, NamesParseBack) {
  for (int i = 0; i < kNumIsas; ++i) {
    const Isa isa = static_cast<Isa>(i);
    Isa parsed = Isa::kScalar;
    EXPECT_TRUE(parse_isa(isa_name(isa), &parsed));
    EXPECT_EQ(parsed, isa);
  }
  Isa parsed = Isa::kAvx2;
  EXPECT_FALSE(parse_isa("avx", &parsed));
  EXPECT_FALSE(parse_isa("", &parsed));
  EXPECT_EQ(parsed, Isa::kAvx2);
}

TEST(Isa, LevelsAreNestedAndTheBestIsTheHighest) {
  EXPECT_TRUE(isa_supported(Isa::kScalar));
  for (int i = 0; i < kNumIsas; ++i) {
    const Isa isa = static_cast<Isa>(i);
    EXPECT_EQ(isa_supported(isa), isa <= best_supported_isa());
    EXPECT_EQ(kernel_table(isa) != nullptr, isa_supported(isa));
  }
}

// The compiler's own detection as the second opinion.
#if defined(__x86_64__)
TEST(Isa, DetectionAgreesWithTheCompilersRuntime) {
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 =
      avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  EXPECT_EQ(isa_supported(Isa::kAvx2), avx2);
  EXPECT_EQ(isa_supported(Isa::kAvx512), avx512);
}
#endif

TEST(Isa, AForcedLevelIsTheOneUnderTest) {
  const char* forced = std::getenv("MOE_CPU_ISA");
  if (forced == nullptr) {
    GTEST_SKIP() << "MOE_CPU_ISA is not set";
  }
  Isa isa = Isa::kScalar;
  ASSERT_TRUE(parse_isa(forced, &isa)) << forced;
  if (!isa_supported(isa)) {
    GTEST_SKIP() << "this machine cannot run " << forced;
  }
  const std::vector<Level> levels = levels_under_test();
  ASSERT_EQ(levels.size(), 1U);
  EXPECT_EQ(levels.front().table->isa, isa);
  EXPECT_EQ(levels.front().table, kernel_table(isa));
}

class SelfTest : public LevelTest {};

TEST_P(SelfTest, Passes) {
  const char* failed = "unset";
  EXPECT_TRUE(self_test_table(table(), &failed)) << failed;
  EXPECT_EQ(failed, nullptr);
}

TEST_P(SelfTest, LevelHasItsOwnTable) {
  const Isa isa = table().isa;
  for (int i = 0; i < kNumIsas; ++i) {
    const KernelTable* other = kernel_table(static_cast<Isa>(i));
    if (other != nullptr && other->isa != isa) {
      EXPECT_NE(other->gemm, table().gemm);
      EXPECT_NE(other->gemm_gate_up, table().gemm_gate_up);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, SelfTest, testing::ValuesIn(levels_under_test()), level_test_name);

TEST(SelfTestOfALevel, SaysWhenTheLevelIsNotThere) {
  for (int i = 0; i < kNumIsas; ++i) {
    const Isa isa = static_cast<Isa>(i);
    const char* failed = nullptr;
    EXPECT_EQ(self_test(isa, &failed), isa_supported(isa)) << failed;
  }
}

// Faults of the kind that a wrong instruction would cause: one lane, one case, one row.
const KernelTable& sound() {
  return *kernel_table(Isa::kScalar);
}

KernelTable broken_gemm(WeightFormat format) {
  KernelTable table = sound();
  static WeightFormat broken_format;
  broken_format = format;
  table.gemm = [](const GemmArgs& args) noexcept {
    sound().gemm(args);
    if (args.weight.format == broken_format && args.num_rows == 5) {
      args.y[4 * args.y_stride + 18] += 0.02F;
    }
  };
  return table;
}

std::string failure_of(const KernelTable& table) {
  const char* failed = nullptr;
  return self_test_table(table, &failed) ? "none" : failed;
}

TEST(SelfTestOfALevel, SeesOneWrongProductInAnyFormat) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16,
                                    WeightFormat::kFp8, WeightFormat::kMxfp4}) {
    EXPECT_EQ(failure_of(broken_gemm(format)), "gemm");
  }
}

TEST(SelfTestOfALevel, SeesAWriteBeyondTheLastOutput) {
  KernelTable table = sound();
  table.gemm = [](const GemmArgs& args) noexcept {
    sound().gemm(args);
    args.y[args.weight.rows] = 0.0F;
  };
  EXPECT_EQ(failure_of(table), "gemm");
}

TEST(SelfTestOfALevel, SeesABf16ProductThatIsWrong) {
  KernelTable table = sound();
  table.gemm = [](const GemmArgs& args) noexcept {
    sound().gemm(args);
    if (args.activation_format == ActivationFormat::kBf16) {
      args.y[0] *= 1.01F;
    }
  };
  EXPECT_EQ(failure_of(table), "gemm with bf16 activations");
}

TEST(SelfTestOfALevel, SeesAMissingClamp) {
  KernelTable table = sound();
  table.gemm_gate_up = [](const GateUpArgs& args) noexcept {
    GateUpArgs unclamped = args;
    unclamped.limit = 1e9F;
    sound().gemm_gate_up(unclamped);
  };
  EXPECT_EQ(failure_of(table), "gemm_gate_up with bf16 activations");
}

TEST(SelfTestOfALevel, SeesAWrongActivationFunction) {
  KernelTable table = sound();
  table.gemm_gate_up = [](const GateUpArgs& args) noexcept {
    GateUpArgs other = args;
    other.up_bias = args.gate_bias;
    sound().gemm_gate_up(other);
  };
  EXPECT_EQ(failure_of(table), "gemm_gate_up");
}

TEST(SelfTestOfALevel, SeesAForgottenWindowAndAForgottenSink) {
  KernelTable table = sound();
  table.attention = [](const AttentionArgs& args) noexcept {
    AttentionArgs other = args;
    other.window = 0;
    sound().attention(other);
  };
  EXPECT_EQ(failure_of(table), "attention");
  table.attention = [](const AttentionArgs& args) noexcept {
    AttentionArgs other = args;
    other.sinks = nullptr;
    sound().attention(other);
  };
  EXPECT_EQ(failure_of(table), "attention");
}

TEST(SelfTestOfALevel, SeesWrongVectorOperations) {
  KernelTable table = sound();
  table.rms_norm = [](const float* x, const float* weight, std::int64_t n, float,
                      float* y) noexcept { sound().rms_norm(x, weight, n, 0.1F, y); };
  EXPECT_EQ(failure_of(table), "rms_norm");
  table = sound();
  table.axpy = [](float scale, const float* x, std::int64_t n, float* out) noexcept {
    sound().axpy(scale, x, n - n % 8, out);
  };
  EXPECT_EQ(failure_of(table), "axpy");
  table = sound();
  table.f32_to_bf16 = [](const float* x, std::int64_t n, std::uint16_t* out) noexcept {
    sound().f32_to_bf16(x, n, out);
    out[n - 1] = static_cast<std::uint16_t>(out[n - 1] + 1);
  };
  EXPECT_EQ(failure_of(table), "f32_to_bf16");
  table = sound();
  table.dot = [](const float* x, const float* y, std::int64_t n) noexcept {
    return sound().dot(x, y, n - 1);
  };
  EXPECT_EQ(failure_of(table), "dot");
}

}  // namespace
}  // namespace moe::kernels
