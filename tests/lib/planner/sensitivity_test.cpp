#include "lib/planner/sensitivity.hpp"

#include <gtest/gtest.h>

namespace moe::planner {
namespace {

SensitivityInput input(const std::string& name, std::optional<double> low,
                       std::optional<double> high) {
  return {name, "low", "high", [low] { return low; }, [high] { return high; }};
}

TEST(Tornado, WidestSwingComesFirstAndWhatBreaksBeforeAll) {
  const auto rows =
      tornado(100.0, {input("narrow", 99.0, 102.0), input("wide", 60.0, 105.0),
                      input("breaks", 100.0, std::nullopt), input("middle", 90.0, 120.0)});
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].name, "breaks");
  EXPECT_TRUE(rows[0].breaks);
  EXPECT_EQ(rows[1].name, "wide");
  EXPECT_DOUBLE_EQ(rows[1].swing_ratio, 0.4);
  EXPECT_EQ(rows[2].name, "middle");
  EXPECT_EQ(rows[3].name, "narrow");
  EXPECT_DOUBLE_EQ(rows[3].swing_ratio, 0.02);
}

TEST(Tornado, EqualSwingsKeepTheirOrder) {
  const auto rows = tornado(10.0, {input("a", 9.0, 10.0), input("b", 10.0, 11.0)});
  EXPECT_EQ(rows[0].name, "a");
  EXPECT_EQ(rows[1].name, "b");
}

}  // namespace
}  // namespace moe::planner
