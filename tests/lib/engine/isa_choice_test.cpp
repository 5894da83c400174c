#include "lib/engine/isa_choice.hpp"

#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

using kernels::Isa;
using ::testing::HasSubstr;

using kernels::ActivationFormat;
using kernels::WeightFormat;
using ::testing::IsEmpty;
using ::testing::Not;

// A machine that has `there` and computes wrong values at `wrong`. Nothing may be timed.
IsaProbe machine(std::set<Isa> there, std::set<Isa> wrong = {}) {
  IsaProbe probe;
  probe.is_there = [there](Isa isa) { return there.contains(isa); };
  probe.first_wrong_function = [wrong](Isa isa) -> const char* {
    return wrong.contains(isa) ? "gemm_bf16" : nullptr;
  };
  return probe;
}

using Rates = std::map<std::pair<Isa, ActivationFormat>, double>;

// With bf16 weights, and these rates.
IsaProbe timed_machine(const Rates& rates, std::set<Isa> wrong = {}) {
  std::set<Isa> there = {Isa::kScalar};
  for (const auto& [of, rate] : rates) there.insert(of.first);
  IsaProbe probe = machine(there, std::move(wrong));
  probe.can_multiply = [](const PeakCase&) { return true; };
  probe.rates = [rates](std::span<const PeakCase> cases) {
    std::vector<double> found;
    for (const PeakCase& of : cases) found.push_back(rates.at({of.isa, of.activations}));
    return found;
  };
  return probe;
}

IsaRequest bf16_model() {
  return {.forced = {},
          .weights = WeightFormat::kBf16,
          .activations = {ActivationFormat::kF32, ActivationFormat::kBf16}};
}

IsaRequest forced(Isa isa) {
  IsaRequest request;
  request.forced = isa;
  return request;
}

// Measured rates per core in units of AVX2's f32 products: on Zen 4 vdpbf16ps doubles them, on
// Emerald Rapids it halves those of AVX-512, and tiles are far ahead.
const Rates kZen4 = {{{Isa::kAvx2, ActivationFormat::kF32}, 1.0},
                     {{Isa::kAvx512, ActivationFormat::kF32}, 1.0},
                     {{Isa::kAvx512Bf16, ActivationFormat::kF32}, 1.0},
                     {{Isa::kAvx512Bf16, ActivationFormat::kBf16}, 2.0}};
const Rates kXeonWithoutTiles = {{{Isa::kAvx2, ActivationFormat::kF32}, 1.0},
                                 {{Isa::kAvx512, ActivationFormat::kF32}, 1.85},
                                 {{Isa::kAvx512Bf16, ActivationFormat::kF32}, 1.85},
                                 {{Isa::kAvx512Bf16, ActivationFormat::kBf16}, 0.9}};

Rates with_tiles(double rate) {
  Rates rates = kXeonWithoutTiles;
  rates[{Isa::kAmx, ActivationFormat::kBf16}] = rate;
  rates[{Isa::kAmx, ActivationFormat::kF32}] = 1.85;
  return rates;
}

TEST(IsaChoice, TakesTheBestLevelThatIsThere) {
  EXPECT_EQ(choose_isa(IsaRequest{}, machine({Isa::kScalar})).isa, Isa::kScalar);
  const IsaChoice choice = choose_isa(IsaRequest{}, machine({Isa::kScalar, Isa::kAvx2}));
  EXPECT_EQ(choice.isa, Isa::kAvx2);
  EXPECT_EQ(choice.reason, "avx2 is the best level that this machine runs right");
}

TEST(IsaChoice, StepsDownWhenTheSelfTestFailsAndSaysSo) {
  const IsaChoice choice =
      choose_isa(IsaRequest{}, machine({Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16},
                                       {Isa::kAvx512, Isa::kAvx512Bf16}));
  EXPECT_EQ(choice.isa, Isa::kAvx2);
  EXPECT_THAT(choice.reason, HasSubstr("avx512_bf16 failed its self-test (gemm_bf16)"));
  EXPECT_THAT(choice.reason, HasSubstr("avx512 failed its self-test (gemm_bf16)"));
}

TEST(IsaChoice, PassesOverALevelThatTheBuildLacks) {
  const IsaChoice choice =
      choose_isa(IsaRequest{}, machine({Isa::kScalar, Isa::kAvx512}, {Isa::kAvx512}));
  EXPECT_EQ(choice.isa, Isa::kScalar);
  EXPECT_THAT(choice.reason, HasSubstr("avx2 is not in this build"));
}

TEST(IsaChoice, ForcedLevelNeverFallsBack) {
  EXPECT_EQ(choose_isa(forced(Isa::kScalar), machine({Isa::kScalar, Isa::kAvx2})).isa,
            Isa::kScalar);
  try {
    (void)choose_isa(forced(Isa::kAvx512), machine({Isa::kScalar, Isa::kAvx2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("the best one here is avx2"));
  }
  try {
    (void)choose_isa(forced(Isa::kAvx2), machine({Isa::kScalar, Isa::kAvx2}, {Isa::kAvx2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  }
}

TEST(IsaChoice, TheMeasurementDecidesBetweenLevelsAndModes) {
  const IsaChoice zen = choose_isa(bf16_model(), timed_machine(kZen4));
  EXPECT_EQ(zen.isa, Isa::kAvx512Bf16);
  EXPECT_EQ(zen.activations, ActivationFormat::kBf16);
  EXPECT_THAT(zen.reason, Not(HasSubstr("slower")));
  const IsaChoice xeon = choose_isa(bf16_model(), timed_machine(kXeonWithoutTiles));
  EXPECT_EQ(xeon.isa, Isa::kAvx512Bf16);
  EXPECT_EQ(xeon.activations, ActivationFormat::kF32);
  EXPECT_THAT(xeon.reason, HasSubstr("avx512_bf16 with bf16 activations measured slower than "
                                     "avx512_bf16 with f32 activations"));
  const IsaChoice tiles = choose_isa(bf16_model(), timed_machine(with_tiles(20.0)));
  EXPECT_EQ(tiles.isa, Isa::kAmx);
  EXPECT_EQ(tiles.activations, ActivationFormat::kBf16);
  // What was measured is kept, best level first, for the report.
  ASSERT_EQ(tiles.measured.size(), 6U);
  EXPECT_EQ(tiles.measured.front().of.isa, Isa::kAmx);
  EXPECT_EQ(tiles.measured.front().flops_per_s, 20.0);
}

TEST(IsaChoice, ASlowHigherLevelIsPassedOver) {
  Rates rates = kZen4;
  rates[{Isa::kAvx512Bf16, ActivationFormat::kBf16}] = 0.3;
  rates[{Isa::kAvx512Bf16, ActivationFormat::kF32}] = 0.4;
  rates[{Isa::kAvx512, ActivationFormat::kF32}] = 0.5;
  const IsaChoice choice = choose_isa(bf16_model(), timed_machine(rates));
  EXPECT_EQ(choice.isa, Isa::kAvx2);
  EXPECT_THAT(choice.reason, HasSubstr("avx512 with f32 activations measured slower than avx2"));
}

TEST(IsaChoice, LevelsThatAreAboutEqualDoNotChangePlaces) {
  Rates rates = kZen4;
  // Noise of a tenth, either way: the higher level stays.
  for (const double noise : {0.9, 1.0, 1.1}) {
    rates[{Isa::kAvx512Bf16, ActivationFormat::kBf16}] = noise;
    const IsaChoice choice = choose_isa(bf16_model(), timed_machine(rates));
    EXPECT_EQ(choice.isa, Isa::kAvx512Bf16) << noise;
    EXPECT_EQ(choice.activations, ActivationFormat::kBf16) << noise;
  }
}

TEST(IsaChoice, AWrongLevelIsNotChosenHoweverFast) {
  const IsaChoice choice =
      choose_isa(bf16_model(), timed_machine(with_tiles(100.0), {Isa::kAmx, Isa::kAvx512Bf16}));
  EXPECT_EQ(choice.isa, Isa::kAvx512);
  EXPECT_THAT(choice.reason, HasSubstr("amx failed its self-test (gemm_bf16)"));
  for (const MeasuredCase& one : choice.measured) EXPECT_LT(one.of.isa, Isa::kAvx512Bf16);
}

TEST(IsaChoice, AForcedLevelStaysHoweverSlow) {
  IsaRequest request = bf16_model();
  request.forced = Isa::kAvx2;
  const IsaChoice low = choose_isa(request, timed_machine(with_tiles(100.0)));
  EXPECT_EQ(low.isa, Isa::kAvx2);
  EXPECT_EQ(low.activations, ActivationFormat::kF32);
  EXPECT_THAT(low.measured, IsEmpty());
  // Its mode is still chosen by measuring, when it is not forced too.
  request.forced = Isa::kAvx512Bf16;
  EXPECT_EQ(choose_isa(request, timed_machine(kZen4)).activations, ActivationFormat::kBf16);
  EXPECT_EQ(choose_isa(request, timed_machine(kXeonWithoutTiles)).activations,
            ActivationFormat::kF32);
}

TEST(IsaChoice, AForcedModeIsKeptAtEveryLevel) {
  IsaRequest request = bf16_model();
  request.activations = {ActivationFormat::kBf16};
  IsaProbe probe = machine({Isa::kScalar, Isa::kAvx2});
  probe.can_multiply = [](const PeakCase&) { return true; };
  EXPECT_EQ(choose_isa(request, probe).activations, ActivationFormat::kBf16);
  probe.can_multiply = [](const PeakCase&) { return false; };
  EXPECT_THROW((void)choose_isa(request, probe), Error);
}

// Nobody chooses int8 for the user; once it is asked for, levels are measured with it.
TEST(IsaChoice, Int8IsAModeOfItsOwn) {
  IsaRequest request = bf16_model();
  request.weights = WeightFormat::kInt8;
  request.activations = {ActivationFormat::kInt8};
  const IsaChoice tiles =
      choose_isa(request, timed_machine({{{Isa::kAvx2, ActivationFormat::kInt8}, 1.0},
                                         {{Isa::kAvx512, ActivationFormat::kInt8}, 4.0},
                                         {{Isa::kAvx512Bf16, ActivationFormat::kInt8}, 4.0},
                                         {{Isa::kAmx, ActivationFormat::kInt8}, 2.0}}));
  EXPECT_EQ(tiles.isa, Isa::kAvx512Bf16);
  EXPECT_EQ(tiles.activations, ActivationFormat::kInt8);
  EXPECT_THAT(tiles.reason, HasSubstr("amx with int8 activations measured slower"));
  IsaProbe probe = machine({Isa::kScalar, Isa::kAvx2});
  probe.can_multiply = [](const PeakCase& of) { return of.weights != WeightFormat::kInt8; };
  try {
    (void)choose_isa(request, probe);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("int8 activations"));
  }
}

TEST(IsaChoice, SaysWhyTheSystemRefusesALevel) {
  IsaProbe probe = machine({Isa::kScalar, Isa::kAvx2});
  probe.refusal = [](Isa isa) { return isa == Isa::kAmx ? "no permission for tiles" : nullptr; };
  EXPECT_THAT(choose_isa(IsaRequest{}, probe).reason,
              HasSubstr("amx cannot be used: no permission for tiles"));
  try {
    (void)choose_isa(forced(Isa::kAmx), probe);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("no permission for tiles"));
  }
}

TEST(IsaChoice, NoRightLevelIsAnError) {
  EXPECT_THROW((void)choose_isa(IsaRequest{}, machine({Isa::kScalar}, {Isa::kScalar})), Error);
}

}  // namespace
}  // namespace moe::engine
