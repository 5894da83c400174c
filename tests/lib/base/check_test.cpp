#include "lib/base/check.hpp"

#include <gtest/gtest.h>

namespace moe {
namespace {

TEST(CheckDeathTest, FailureNamesExpressionAndPlaceAndAborts) {
  const int count = 3;
  EXPECT_DEATH(MOE_CHECK(count == 4), "check failed: count == 4 at .*check_test.cpp");
}

TEST(Check, TrueConditionIsEvaluatedOnce) {
  int num_evaluations = 0;
  const auto is_first = [&] { return ++num_evaluations == 1; };
  MOE_CHECK(is_first());
  EXPECT_EQ(num_evaluations, 1);
}

struct HandlerCalled {};

TEST(Check, HandlerCanBeReplacedAndRestored) {
  const CheckFailureHandler old =
      set_check_failure_handler([](const char*, const SourceLocation&) { throw HandlerCalled(); });
  EXPECT_THROW(MOE_CHECK(1 + 1 == 3), HandlerCalled);
  const CheckFailureHandler ours = set_check_failure_handler(old);
  EXPECT_NE(ours, old);
}

}  // namespace
}  // namespace moe
