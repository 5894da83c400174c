#include "lib/report/environment.hpp"

#include <gtest/gtest.h>

#include "lib/report/json_io.hpp"
#include "tests/lib/report/sample_report.hpp"

namespace moe::report {
namespace {

TEST(MakeEnvironmentJson, OfThisMachineIsValid) {
  const char* const variables[] = {"OMP_NUM_THREADS=2", "HOME=/root", "NCCL_AUTH_TOKEN=x", nullptr};
  Report report = test::sample_report();
  report.tool = make_tool_json("moe-bench");
  report.environment = make_environment_json("avx2", variables);
  EXPECT_EQ(test::schema_violations(report), "");
  EXPECT_EQ(report.environment["variables"], (json::Json{{"OMP_NUM_THREADS", "2"}}));
  EXPECT_EQ(report.environment["cpu"]["isa_in_use"], "avx2");
}

TEST(MakeEnvironmentJson, OfAMachineThatTellsNothingIsValid) {
  Report report = test::sample_report();
  report.environment = make_environment_json({}, {}, {}, std::nullopt, {});
  EXPECT_EQ(test::schema_violations(report), "");
  EXPECT_TRUE(report.environment["cpu"]["model"].is_null());
}

TEST(FormatUtc, MatchesKnownTimes) {
  EXPECT_EQ(format_utc(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_utc(951782400), "2000-02-29T00:00:00Z");
  EXPECT_EQ(format_utc(1767225599), "2025-12-31T23:59:59Z");
}

}  // namespace
}  // namespace moe::report
