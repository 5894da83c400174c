#include "lib/app/progress_terminal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressLine, ShowsShareRateAndRemainingTime) {
  const std::string line = progress_line("experts", 500'000'000, 1'000'000'000, "bytes", 2.0);
  EXPECT_THAT(line, HasSubstr("experts"));
  EXPECT_THAT(line, HasSubstr("[############............]"));
  EXPECT_THAT(line, HasSubstr(" 50 %"));
  EXPECT_THAT(line, HasSubstr("250.0 MB/s"));
  EXPECT_THAT(line, HasSubstr("2.00 s left"));
}

TEST(ProgressLine, HasNoRemainingTimeAtTheEndOrWithoutATotal) {
  EXPECT_THAT(progress_line("points", 6, 6, "points", 3.0), Not(HasSubstr("left")));
  const std::string line = progress_line("tokens", 1000, 0, "tokens", 2.0);
  EXPECT_THAT(line, HasSubstr("1.00 k tokens"));
  EXPECT_THAT(line, HasSubstr("500 tokens/s"));
}

TEST(ProgressLine, StaysInsideItsBar) {
  EXPECT_THAT(progress_line("x", 20, 10, "points", 1.0), HasSubstr("100 %"));
  EXPECT_THAT(progress_line("x", 0, 10, "points", 0.0), HasSubstr("  0 %"));
}

}  // namespace
}  // namespace moe::app
