#include "lib/topology/cpu_set.hpp"

#include <gtest/gtest.h>

namespace moe::topology {
namespace {

std::string list(std::string_view text) {
  const auto set = parse_number_list(text);
  return set ? set->to_string() : "none";
}

std::string mask(std::string_view text) {
  const auto set = parse_mask(text);
  return set ? set->to_string() : "none";
}

TEST(NumberSet, ReadsListsAsNvidiaSmiPrintsThem) {
  EXPECT_EQ(list("0-47,96-143"), "0-47,96-143");
  EXPECT_EQ(list("0"), "0");
  EXPECT_EQ(list("0,5-11"), "0,5-11");
  EXPECT_EQ(list("4-5,0-3"), "0-5");
}

TEST(NumberSet, RefusesWhatIsNoList) {
  for (const char* text : {"", "N/A", "3-1", "1,,2", "-1", "1-", "70000", "1 2", "0x3"}) {
    EXPECT_EQ(list(text), "none") << text;
  }
}

TEST(NumberSet, ReadsMasksOfWordsMostSignificantFirst) {
  EXPECT_EQ(mask("00000000,0000ffff,ffffffff"), "0-47");
  EXPECT_EQ(mask("ffffffff,ffff0000,00000000"), "48-95");
  EXPECT_EQ(mask("00000000,ff000000,00000000,ff000000"), "24-31,88-95");
}

TEST(NumberSet, ReadsHwlocMasksWithPrefixesAndEmptyWords) {
  EXPECT_EQ(mask("0x00000303,0x03030000,,0x03030303"),
            "0-1,8-9,16-17,24-25,80-81,88-89,96-97,104-105");
}

TEST(NumberSet, RefusesWhatIsNoMask) {
  EXPECT_EQ(mask("fffffffff"), "none");
  EXPECT_EQ(mask("xyz"), "none");
  EXPECT_EQ(mask(std::string(100000, ',')), "none");
}

TEST(NumberSet, KnowsWhatItSharesWithAnother) {
  EXPECT_TRUE(parse_number_list("0-7")->intersects(*parse_number_list("7-9")));
  EXPECT_FALSE(parse_number_list("0-7,16-23")->intersects(*parse_number_list("8-15")));
  EXPECT_EQ(parse_number_list("0-7,16-23")->size(), 16);
}

}  // namespace
}  // namespace moe::topology
