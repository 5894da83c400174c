// Goal: levels have names, are detected and chosen consistently, and the self-test sees a fault in
// any function. Method: tables with one function exchanged for a wrong one.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/isa_detect.hpp"
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

// A machine that has everything.
CpuFacts amx_machine() {
  return {.leaf1_ecx = (1U << 12) | (1U << 27) | (1U << 28) | (1U << 29),
          .leaf7_ebx = (1U << 5) | (1U << 16) | (1U << 17) | (1U << 30) | (1U << 31),
          .leaf7_ecx = 1U << 11,
          .leaf7_edx = (1U << 22) | (1U << 24) | (1U << 25),
          .leaf7_1_eax = 1U << 5,
          .leaf1d_eax = 1,
          .xcr0 = 0x600e7};
}

bool grants() {
  return true;
}
bool refuses() {
  return false;
}
bool must_not_be_asked() {
  ADD_FAILURE() << "permission asked for tiles that are not there";
  return true;
}

TEST(IsaDetection, FindsEveryLevel) {
  CpuFacts facts = amx_machine();
  EXPECT_EQ(detect_isa(facts, grants).highest, Isa::kAmx);
  EXPECT_EQ(detect_isa(facts, grants).amx_refusal, nullptr);
  facts.leaf7_edx = 0;
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kAvx512Bf16);
  facts.leaf7_ecx = 0;  // the level above AVX-512 needs VNNI, too
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kAvx512);
  EXPECT_FALSE(detect_isa(facts, must_not_be_asked).has_vnni);
  facts.leaf7_ecx = 1U << 11;
  facts.leaf7_1_eax = 0;
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kAvx512);
  EXPECT_TRUE(detect_isa(facts, must_not_be_asked).has_vnni);
  facts.xcr0 = 0x7;  // the system keeps ymm registers only
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kAvx2);
  facts.xcr0 = 0x3;
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kScalar);
  EXPECT_EQ(detect_isa({}, must_not_be_asked).highest, Isa::kScalar);
  EXPECT_EQ(detect_isa(facts, must_not_be_asked).amx_refusal, nullptr);
  EXPECT_FALSE(detect_isa(facts, must_not_be_asked).has_vnni);
}

TEST(IsaDetection, TilesThatCannotBeUsedAreRefusedWithAReason) {
  const auto refusal = [](const CpuFacts& facts, bool (*request)()) {
    const IsaDetection found = detect_isa(facts, request);
    EXPECT_EQ(found.highest, Isa::kAvx512Bf16);
    return std::string(found.amx_refusal == nullptr ? "" : found.amx_refusal);
  };
  EXPECT_THAT(refusal(amx_machine(), refuses), ::testing::HasSubstr("arch_prctl"));
  CpuFacts facts = amx_machine();
  facts.leaf1d_eax = 0;  // a hypervisor that shows the bit and no palette
  EXPECT_THAT(refusal(facts, must_not_be_asked), ::testing::HasSubstr("palette"));
  facts = amx_machine();
  facts.xcr0 &= ~(std::uint64_t{1} << 18U);
  EXPECT_THAT(refusal(facts, must_not_be_asked), ::testing::HasSubstr("XCR0"));
}

TEST(IsaDetection, AllTileFeaturesAreNeeded) {
  for (const unsigned missing : {22U, 24U, 25U}) {
    CpuFacts facts = amx_machine();
    facts.leaf7_edx &= ~(1U << missing);
    EXPECT_EQ(detect_isa(facts, must_not_be_asked).highest, Isa::kAvx512Bf16);
  }
}

TEST(IsaDetection, ALevelThatRunsHasNoRefusal) {
  for (int i = 0; i < kNumIsas; ++i) {
    const Isa isa = static_cast<Isa>(i);
    EXPECT_TRUE(!isa_supported(isa) || isa_refusal(isa) == nullptr);
  }
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
      // AVX-512 with VNNI and the levels above share these.
      if (std::min(other->isa, isa) < Isa::kAvx512) {
        EXPECT_NE(other->gemm_int8, table().gemm_int8);
        EXPECT_NE(other->gemm_gate_up_int8, table().gemm_gate_up_int8);
      }
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

TEST(SelfTestOfALevel, SeesACodedProductOfBf16ThatIsWrong) {
  KernelTable table = sound();
  table.gemm = [](const GemmArgs& args) noexcept {
    sound().gemm(args);
    if (args.activation_format == ActivationFormat::kBf16 &&
        args.weight.format == WeightFormat::kInt4 && args.num_rows == 33) {
      args.y[32 * args.y_stride] += 0.02F;
    }
  };
  EXPECT_EQ(failure_of(table), "gemm with bf16 activations");
  table.has_coded_bf16 = false;
  EXPECT_EQ(failure_of(table), "none");
}

TEST(SelfTestOfALevel, SeesOneWrongBitOfAnInt8Product) {
  KernelTable table = sound();
  table.gemm_int8 = [](const GemmArgs& args) noexcept {
    sound().gemm_int8(args);
    if (args.weight.format == WeightFormat::kInt4 && args.num_rows == 9) {
      float& value = args.y[8 * args.y_stride + 40];
      value = std::nextafter(value, 1e9F);
    }
  };
  EXPECT_EQ(failure_of(table), "gemm_int8");
  table = sound();
  table.gemm_gate_up_int8 = [](const GateUpArgs& args) noexcept {
    GateUpArgs other = args;
    other.gate_bias = nullptr;
    sound().gemm_gate_up_int8(other);
  };
  EXPECT_EQ(failure_of(table), "gemm_gate_up_int8");
  table = sound();
  table.quantize_row = [](const QuantizeArgs& args) noexcept {
    sound().quantize_row(args);
    args.sums[1] += 1;
  };
  EXPECT_EQ(failure_of(table), "quantize_row");
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
