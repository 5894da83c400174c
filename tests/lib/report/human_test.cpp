#include "lib/report/human.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moe::report {
namespace {

TEST(HumanValue, PicksTheUnit) {
  EXPECT_EQ(human_value(0.0123, "s"), "12.30 ms");
  EXPECT_EQ(human_value(0.0, "s"), "0 s");
  EXPECT_EQ(human_value(-0.5, "s"), "-500.00 ms");
  EXPECT_EQ(human_value(3.2e10, "bytes/s"), "32.0 GB/s");
  EXPECT_EQ(human_value(1048576.0 * 1.5, "bytes"), "1.5 MiB");
  EXPECT_EQ(human_value(2.5e12, "flop/s"), "2.5 Tflop/s");
  EXPECT_EQ(human_value(98479719791.2, "ops/s"), "98.5 Gops/s");
  EXPECT_EQ(human_value(0.25, "1"), "0.2500");
  EXPECT_EQ(human_value(1386.25, "tokens/s"), "1386 tokens/s");
}

TEST(HumanNumber, ShowsFourDigits) {
  EXPECT_EQ(human_number(0.0), "0");
  EXPECT_EQ(human_number(-0.0), "0");
  EXPECT_EQ(human_number(12.3456), "12.35");
  EXPECT_EQ(human_number(123456.0), "123456");
  EXPECT_EQ(human_number(0.000012345), "1.234e-05");
  EXPECT_EQ(human_number(0.0123456), "0.01235");
}

TEST(HumanBeside, NeverRoundsAcrossTheThreshold) {
  EXPECT_EQ(human_beside(0.31, 0.5, "s"), "0.31 s");
  EXPECT_EQ(human_beside(0.79996, 0.8, "1"), "0.79996");
  EXPECT_EQ(human_beside(0.8, 0.8, "1"), "0.8");
  EXPECT_EQ(human_beside(0.80004, 0.8, "1"), "0.80004");
}

TEST(HumanLabel, LeavesTheUnitOut) {
  EXPECT_EQ(human_label("ttft_s", "s"), "ttft");
  EXPECT_EQ(human_label("kv_cache_bytes", "bytes"), "kv cache");
  EXPECT_EQ(human_label("output_tokens_per_s", "tokens/s"), "output tokens/s");
  EXPECT_EQ(human_label("spec_speedup_ratio", "1"), "spec speedup");
  EXPECT_EQ(human_label("status", ""), "status");
  EXPECT_EQ(human_label("_s", "s"), " s");
}

TEST(Printable, ReplacesWhatSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\tc\nd\x7f"), "a?[31mb c d?");
  EXPECT_EQ(printable("\xe2\x80\xaex\xc2\x9by"), "?x?y");
  EXPECT_EQ(printable("\xff\xe4\xb8\xad"), "?\xe4\xb8\xad");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("\xe4\xb8\xad\xe6\x96\x87"), 4U);  // two wide characters
  EXPECT_EQ(display_width("\xc3\xa9"), 1U);
  EXPECT_EQ(display_width("e\xcc\x81"), 1U);  // with a combining accent
  EXPECT_EQ(display_width(""), 0U);
}

TEST(LayoutTable, UsesOneScaleForComparableColumns) {
  Table table;
  table.columns = {{"a_s", "s"}, {"b_s", "s"}, {"c_s", "s"}, {"n", "1"}, {"t", ""}};
  table.rows = {{0.5, 0.002, 1e-6, std::int64_t{3}, std::string("x")},
                {0.25, std::monostate{}, 2e-6, std::int64_t{40}, true}};
  const HumanTable layout = layout_table("t", table);
  EXPECT_EQ(layout.columns[0].label, "a");
  EXPECT_EQ(layout.columns[0].unit, "ms");
  EXPECT_EQ(layout.columns[1].unit, "ms");
  EXPECT_EQ(layout.columns[2].unit, "us");  // a thousand times smaller
  EXPECT_EQ(layout.columns[3].unit, "");
  EXPECT_EQ(layout.rows[0][1], "2");
  EXPECT_EQ(layout.rows[1][1], "-");
  EXPECT_EQ(layout.rows[0][2], "1");
  EXPECT_EQ(layout.rows[1][4], "yes");
}

TEST(LayoutTable, NeverShowsASmallValueAsZero) {
  Table table;
  table.columns = {{"x", "1"}};
  table.rows = {{1000.5}, {2000.5}, {0.0001}};
  EXPECT_EQ(layout_table("t", table).rows[2][0], "0.0001000");
}

TEST(LayoutTable, KeepsLargeIntegersExact) {
  Table table;
  table.columns = {{"tokens", "tokens"}};
  table.rows = {{std::int64_t{9007199254740993}}};
  EXPECT_EQ(layout_table("t", table).rows[0][0], "9007199254740993");
}

}  // namespace
}  // namespace moe::report
