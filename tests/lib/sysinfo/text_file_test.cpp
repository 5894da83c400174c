#include "lib/sysinfo/text_file.hpp"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace moe::sysinfo {
namespace {

TEST(FindValue, TakesTheFirstLineOfTheKey) {
  const std::string text = "processor\t: 0\nmodel name\t: A CPU : fast\nmodel\t\t: 17\nlast : x";
  EXPECT_EQ(find_value(text, "model name"), "A CPU : fast");
  EXPECT_EQ(find_value(text, "model"), "17");
  EXPECT_EQ(find_value(text, "last"), "x");
  EXPECT_FALSE(find_value(text, "mode"));
  EXPECT_FALSE(find_value("", "x"));
}

TEST(ParseInteger, TakesWholeNumbersOnly) {
  EXPECT_EQ(parse_integer("-12"), -12);
  for (const char* text : {"", " 1", "1 ", "1.5", "0x1", "max", "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(text)) << text;
  }
}

TEST(ParseKilobytes, GivesBytes) {
  EXPECT_EQ(parse_kilobytes("24576 kB"), 24576 * 1024);
  for (const char* text : {"24576", "-1 kB", "9999999999999999 kB", " kB", "1.5 kB"}) {
    EXPECT_FALSE(parse_kilobytes(text)) << text;
  }
  EXPECT_FALSE(parse_kilobytes(std::nullopt));
}

TEST(ParseList, ExpandsRangesThatAscend) {
  EXPECT_EQ(parse_list("0-3,8,10-11"), (std::vector<std::int32_t>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_list(""), std::vector<std::int32_t>());
  for (const char* text : {"1,", ",1", "3,2", "0-3,3", "0 1", "0-1048577"}) {
    EXPECT_FALSE(parse_list(text)) << text;
  }
}

TEST(CountList, CountsRanges) {
  EXPECT_EQ(count_list("0"), 1);
  EXPECT_EQ(count_list("0-3,8,10-11"), 7);
  for (const char* text : {"3-1", "a", "1-", "-1", "0-9999999999", ","}) {
    EXPECT_FALSE(count_list(text)) << text;
  }
}

TEST(ReadLine, IsAbsentForMissingAndEmptyFiles) {
  const test::TempDir folder;
  test::write_file(folder / "empty", "\n");
  test::write_file(folder / "line", "  schedutil \nnext\n");
  EXPECT_FALSE(read_line(folder / "empty"));
  EXPECT_FALSE(read_line(folder / "none"));
  EXPECT_FALSE(read_line(folder.path()));
  EXPECT_EQ(read_line(folder / "line"), "schedutil");
}

}  // namespace
}  // namespace moe::sysinfo
