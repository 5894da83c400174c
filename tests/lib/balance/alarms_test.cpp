#include "lib/balance/alarms.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/balance/series_text.hpp"
#include "lib/base/error.hpp"

namespace moe::balance {
namespace {

using ::testing::HasSubstr;

std::vector<AlarmSample> series(const std::vector<double>& values) {
  std::vector<AlarmSample> samples;
  for (const double value : values) {
    samples.push_back({10.0 * static_cast<double>(samples.size()), value});
  }
  return samples;
}

TEST(Alarm, ReadsARule) {
  const AlarmRule rule = parse_alarm_rule("gpu_load_sigma_ratio > 0.5 over 5min for 30s");
  EXPECT_EQ(rule.metric, "gpu_load_sigma_ratio");
  EXPECT_EQ(rule.comparison, AlarmComparison::kAbove);
  EXPECT_DOUBLE_EQ(rule.threshold, 0.5);
  EXPECT_DOUBLE_EQ(rule.over_s, 300.0);
  EXPECT_DOUBLE_EQ(rule.for_s, 30.0);
  EXPECT_EQ(describe(rule), "gpu_load_sigma_ratio > 0.5 over 300s for 30s");
}

TEST(Alarm, RefusesARuleThatIsNone) {
  for (const char* text : {"", "x", "x >", "x ? 1", "x > one", "x > 1 over", "x > 1 during 5s",
                           "x > inf", "x > 1 over 5s 3"}) {
    EXPECT_THROW((void)parse_alarm_rule(text), Error) << text;
  }
}

TEST(Alarm, RingsAfterTheConditionHasHeldLongEnough) {
  const AlarmRule rule = parse_alarm_rule("x > 0.5 for 20s");
  const std::vector<AlarmEvent> events =
      replay_alarm(rule, series({0.4, 0.6, 0.4, 0.6, 0.9, 0.7, 0.5, 0.6}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_DOUBLE_EQ(events[0].begin_s, 30.0);
  EXPECT_DOUBLE_EQ(events[0].ring_s, 50.0);
  EXPECT_DOUBLE_EQ(events[0].end_s, 60.0);
  EXPECT_DOUBLE_EQ(events[0].worst, 0.9);
}

TEST(Alarm, SilenceIsNotAnAlarm) {
  std::vector<AlarmSample> samples = series({0.9, 0.9, 0.9});
  samples[1].value.reset();
  EXPECT_EQ(replay_alarm(parse_alarm_rule("x > 0.5"), samples).size(), 2U);
  EXPECT_TRUE(replay_alarm(parse_alarm_rule("x > 0.5"), {}).empty());
}

TEST(Alarm, WatchesForLowValuesToo) {
  const std::vector<AlarmEvent> events =
      replay_alarm(parse_alarm_rule("balancedness <= 0.7"), series({0.9, 0.7, 0.6, 0.8}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_DOUBLE_EQ(events[0].worst, 0.6);
}

TEST(Alarm, RefusesTimeThatRunsBackwards) {
  std::vector<AlarmSample> samples = series({0.1, 0.1});
  samples[1].time_s = -1.0;
  EXPECT_THROW((void)replay_alarm(parse_alarm_rule("x > 0.5"), samples), Error);
}

TEST(Alarm, IsScoredByLabels) {
  const std::vector<AlarmEvent> events = {{.begin_s = 10, .ring_s = 15, .end_s = 30, .worst = 1},
                                          {.begin_s = 70, .ring_s = 70, .end_s = 80, .worst = 1}};
  const std::vector<AlarmLabel> labels = {{5, 40}, {100, 120}};
  const AlarmScore score = score_alarm(events, labels);
  EXPECT_DOUBLE_EQ(*score.precision(), 0.5);
  EXPECT_DOUBLE_EQ(*score.recall(), 0.5);
  EXPECT_DOUBLE_EQ(*score.delay_s, 10.0);
  EXPECT_FALSE(score_alarm({}, labels).precision().has_value());
}

TEST(Alarm, UsesTheNamesThatServersExport) {
  const auto text =
      prometheus_rule(parse_alarm_rule("balancedness_worst < 0.7 over 5min for 1m"), "Skew");
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, HasSubstr("avg_over_time(vllm:eplb_balancedness_min[300s]) < 0.7"));
  EXPECT_THAT(*text, HasSubstr("for: 60s"));
  EXPECT_FALSE(prometheus_rule(parse_alarm_rule("gpu_load_sigma_ratio > 1"), "x").has_value());
}

TEST(Series, ReadsColumnsAndGaps) {
  const Series read = read_series("time_s,comm_share,x\n0,0.1,5\n10,,6\n", "series.csv");
  EXPECT_EQ(read.names, (std::vector<std::string>{"comm_share", "x"}));
  EXPECT_FALSE(read.values[0][1].has_value());
  EXPECT_DOUBLE_EQ(*read.values[1][1], 6.0);
  EXPECT_EQ(read_labels("begin_s,end_s\n1,2\n", "labels.csv").size(), 1U);
}

TEST(Series, RefusesWhatIsNone) {
  for (const char* text : {"", "time,x\n0,1\n", "time_s\n0\n", "time_s,x\n0\n", "time_s,x\n0,a\n",
                           "time_s,x\n5,1\n4,1\n", "time_s,x\n0,inf\n"}) {
    EXPECT_THROW((void)read_series(text, "series"), Error) << text;
  }
  EXPECT_THROW((void)read_labels("begin_s,end_s\n2,1\n", "labels"), Error);
}

}  // namespace
}  // namespace moe::balance
