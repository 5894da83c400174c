// The flat map of names: against a map of the standard library, and what it promises of its keys.

#include "lib/base/name_map.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace moe {
namespace {

TEST(NameMap, AgreesWithAMapOfTheStandardLibrary) {
  std::map<std::string, std::uint64_t, std::less<>> expected;
  NameMap map;
  for (std::uint64_t number = 0; number < 20'000; ++number) {
    // Every third name comes again, so that the first value is seen to stay.
    const std::string name = "model.layers." + std::to_string(number * 7919 % 14'000) + ".weight";
    const auto [known, is_new] = expected.try_emplace(name, number);
    const auto [value, was_new] = map.insert(known->first, number);
    ASSERT_EQ(was_new, is_new);
    ASSERT_EQ(value, known->second);
  }
  EXPECT_EQ(map.size(), expected.size());
  for (const auto& [name, value] : expected) ASSERT_EQ(map.find(name), value);
  EXPECT_FALSE(map.contains("model.layers.14000.weight"));
  std::map<std::string, std::uint64_t, std::less<>> visited;
  map.for_each([&](std::string_view name, std::uint64_t value) { visited.emplace(name, value); });
  EXPECT_EQ(visited, expected);
}

TEST(NameMap, FindsNothingWhereNothingIs) {
  NameMap map;
  EXPECT_FALSE(map.contains(""));
  EXPECT_FALSE(map.contains("a"));
  EXPECT_EQ(map.size(), 0u);
}

TEST(NameMap, AnEmptyNameIsAName) {
  NameMap map(1);
  EXPECT_TRUE(map.insert(std::string_view(), 3).second);
  EXPECT_EQ(map.find(""), 3u);
  EXPECT_FALSE(map.insert("", 4).second);
  EXPECT_EQ(map.size(), 1u);
}

TEST(NameMap, ValuesCanBeChanged) {
  NameMap map;
  EXPECT_EQ(map.find_value("a"), nullptr);
  map.insert("a", 1);
  *map.find_value("a") = 2;
  EXPECT_EQ(map.find("a"), 2u);
  EXPECT_EQ(map.find_value("b"), nullptr);
}

TEST(NameMap, KeysAreNotCopied) {
  const std::string name = "a name that is long enough to be on the heap";
  NameMap map;
  map.insert(name, 1);
  map.for_each([&](std::string_view key, std::uint64_t) { EXPECT_EQ(key.data(), name.data()); });
}

}  // namespace
}  // namespace moe
