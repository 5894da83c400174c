// Goal: a core that is shared is told from one that is free by what it reads, whatever width the
// processor reaches. Method: readings made by hand, among them those seen on the machines that the
// threshold comes from; the real probe is only asked for what no load can change.

#include "lib/engine/width_probe.hpp"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::engine {
namespace {

using ::testing::HasSubstr;

void add_readings(WidthReference& reference, std::int32_t cpu, const std::vector<double>& widths) {
  for (int round = 0; round < 8; ++round) {
    for (const double width : widths) reference.add(WidthReading{width, cpu});
  }
}

CoreProbe probe_of(std::vector<WidthReading> threads) {
  return {std::move(threads)};
}

TEST(WidthReference, TellsTheTwoLevelsOfAProcessorApart) {
  WidthReference xeon;
  add_readings(xeon, 0, {3.5, 3.45, 2.4});
  EXPECT_EQ(xeon.state(WidthReading{3.5, 0}), CoreState::kFree);
  EXPECT_EQ(xeon.state(WidthReading{3.3, 0}), CoreState::kFree);
  EXPECT_EQ(xeon.state(WidthReading{2.4, 0}), CoreState::kShared);
  // A narrower processor: the line moves with its widest reading.
  WidthReference narrow;
  add_readings(narrow, 0, {2.0, 1.3});
  EXPECT_EQ(narrow.state(WidthReading{1.95, 0}), CoreState::kFree);
  EXPECT_EQ(narrow.state(WidthReading{1.3, 0}), CoreState::kShared);
  EXPECT_THAT(narrow.describe(), HasSubstr("from 1.30 to 2.00"));
}

TEST(WidthReference, OneLevelAloneIsFreeOnlyWhenNothingIsLeftForANeighbour) {
  WidthReference wide;
  add_readings(wide, 0, {3.6, 3.7});
  EXPECT_EQ(wide.state(WidthReading{3.6, 0}), CoreState::kFree);
  EXPECT_THAT(wide.describe(), HasSubstr("one level only"));
  WidthReference always_shared;
  add_readings(always_shared, 0, {2.4, 2.35});
  EXPECT_EQ(always_shared.state(WidthReading{2.4, 0}), CoreState::kUnknown);
  EXPECT_THAT(always_shared.describe(), HasSubstr("may be the free or the shared one"));
}

TEST(WidthReference, EachProcessorHasItsOwnWidth) {
  WidthReference hybrid;
  add_readings(hybrid, 0, {3.9, 2.6});
  add_readings(hybrid, 8, {2.6, 1.7});
  EXPECT_EQ(hybrid.state(WidthReading{2.6, 0}), CoreState::kShared);
  EXPECT_EQ(hybrid.state(WidthReading{2.6, 8}), CoreState::kFree);
  EXPECT_EQ(hybrid.state(WidthReading{2.6, 3}), CoreState::kUnknown);  // never seen
}

TEST(WidthReference, WithoutReadingsNothingIsKnown) {
  WidthReference reference;
  reference.add(WidthReading{0.0, 0});
  EXPECT_TRUE(reference.processors().empty());
  EXPECT_EQ(reference.state(WidthReading{0.0, 0}), CoreState::kUnknown);
  EXPECT_EQ(reference.state(CoreProbe{}), CoreState::kUnknown);
  EXPECT_THAT(reference.describe(), HasSubstr("no width probe"));
  // A few readings are no calibration.
  reference.add(WidthReading{3.9, 0});
  EXPECT_EQ(reference.state(WidthReading{3.9, 0}), CoreState::kUnknown);
}

TEST(WidthReference, ASampleIsFreeWhenAllItsReadingsAre) {
  WidthReference reference;
  add_readings(reference, 0, {3.5, 2.4});
  add_readings(reference, 1, {3.5, 2.4});
  const CoreProbe free = probe_of({{3.5, 0}, {3.4, 1}});
  const CoreProbe half = probe_of({{3.5, 0}, {2.4, 1}});
  const CoreProbe lost = probe_of({{3.5, 0}, {0.0, 1}});
  EXPECT_EQ(reference.state(free), CoreState::kFree);
  EXPECT_EQ(reference.state(half), CoreState::kShared);
  EXPECT_EQ(reference.state(lost), CoreState::kUnknown);
  EXPECT_EQ(reference.state(std::vector{free, free}), CoreState::kFree);
  EXPECT_EQ(reference.state(std::vector{free, half}), CoreState::kShared);
  EXPECT_EQ(reference.state(std::vector{lost, half}), CoreState::kShared);
}

TEST(WidthReference, CountsTheReadingsBelowAWidth) {
  WidthReference reference;
  add_readings(reference, 0, {3.5, 2.4, 2.5});
  const WidthRange& range = reference.processors().at(0);
  EXPECT_EQ(range.num_readings, 24);
  EXPECT_EQ(range.num_below(0.9 * range.most), 16);
  EXPECT_EQ(range.num_below(2.45), 8);
  EXPECT_EQ(range.num_below(5.0), 24);
}

TEST(CoreWatch, ProbesEveryThreadOfAPoolAndRemembers) {
  std::atomic<int> num_calls{0};
  CoreWatch watch([&num_calls] {
    const int call = num_calls.fetch_add(1);
    return WidthReading{call % 2 == 0 ? 3.5 : 2.4, 0};
  });
  ThreadPool pool(3);
  CoreProbe probe;
  watch.probe(pool, probe);
  EXPECT_EQ(probe.threads.size(), 3U);
  EXPECT_EQ(num_calls, 3);
  watch.calibrate(pool);
  EXPECT_EQ(watch.reference().processors().at(0).num_readings, num_calls);
  EXPECT_EQ(watch.reference().state(probe), CoreState::kShared);
}

TEST(WidthProbe, ReadsWhatFourChainsCanReach) {
  for (int i = 0; i < 20; ++i) {
    const WidthReading reading = measure_width();
    EXPECT_GE(reading.cpu, 0);
    EXPECT_GE(reading.adds_per_cycle, 0.0);  // 0: interrupted throughout, or another processor
    EXPECT_LE(reading.adds_per_cycle, 4.2);
  }
}

}  // namespace
}  // namespace moe::engine
