#include "lib/engine/isa_choice.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

using kernels::Isa;
using ::testing::HasSubstr;

// A machine that has `there` and computes wrong values at `wrong`.
IsaProbe machine(std::set<Isa> there, std::set<Isa> wrong = {}) {
  return {.is_there = [there](Isa isa) { return there.contains(isa); },
          .first_wrong_function = [wrong](Isa isa) -> const char* {
            return wrong.contains(isa) ? "gemm_bf16" : nullptr;
          }};
}

TEST(IsaChoice, TakesTheBestLevelThatIsThere) {
  EXPECT_EQ(choose_isa({}, machine({Isa::kScalar})).isa, Isa::kScalar);
  const IsaChoice choice = choose_isa({}, machine({Isa::kScalar, Isa::kAvx2}));
  EXPECT_EQ(choice.isa, Isa::kAvx2);
  EXPECT_EQ(choice.reason, "avx2 is the best level that this machine runs right");
}

TEST(IsaChoice, StepsDownWhenTheSelfTestFailsAndSaysSo) {
  const IsaChoice choice =
      choose_isa({}, machine({Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16},
                             {Isa::kAvx512, Isa::kAvx512Bf16}));
  EXPECT_EQ(choice.isa, Isa::kAvx2);
  EXPECT_THAT(choice.reason, HasSubstr("avx512_bf16 failed its self-test (gemm_bf16)"));
  EXPECT_THAT(choice.reason, HasSubstr("avx512 failed its self-test (gemm_bf16)"));
}

TEST(IsaChoice, PassesOverALevelThatTheBuildLacks) {
  const IsaChoice choice = choose_isa({}, machine({Isa::kScalar, Isa::kAvx512}, {Isa::kAvx512}));
  EXPECT_EQ(choice.isa, Isa::kScalar);
  EXPECT_THAT(choice.reason, HasSubstr("avx2 is not in this build"));
}

TEST(IsaChoice, ForcedLevelNeverFallsBack) {
  EXPECT_EQ(choose_isa(Isa::kScalar, machine({Isa::kScalar, Isa::kAvx2})).isa, Isa::kScalar);
  try {
    (void)choose_isa(Isa::kAvx512, machine({Isa::kScalar, Isa::kAvx2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("the best one here is avx2"));
  }
  try {
    (void)choose_isa(Isa::kAvx2, machine({Isa::kScalar, Isa::kAvx2}, {Isa::kAvx2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  }
}

TEST(IsaChoice, NoRightLevelIsAnError) {
  EXPECT_THROW((void)choose_isa({}, machine({Isa::kScalar}, {Isa::kScalar})), Error);
}

}  // namespace
}  // namespace moe::engine
