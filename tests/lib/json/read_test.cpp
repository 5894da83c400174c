#include "lib/json/read.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::json {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message of the Error that parsing throws; empty when it throws none.
std::string read_refusal(std::string_view text, const ReadLimits& limits = {}) {
  try {
    (void)parse(text, "config.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), StartsWith("config.json: "));
    return error.what();
  }
  return {};
}

TEST(Parse, KeepsTheOrderOfKeys) {
  const Json value = parse(R"({"z": 1, "a": [true, null, "x", -2, 1.5], "m": {}})", "x");
  EXPECT_EQ(value.dump(), R"({"z":1,"a":[true,null,"x",-2,1.5],"m":{}})");
}

TEST(Parse, TakesScalarsAtTheTop) {
  EXPECT_EQ(parse("42", "x"), 42);
  EXPECT_EQ(parse("\"text\"", "x"), "text");
  EXPECT_TRUE(parse("null", "x").is_null());
}

TEST(Parse, KeepsIntegersExactly) {
  EXPECT_EQ(parse("9007199254740993", "x").get<std::int64_t>(), 9007199254740993);
  EXPECT_EQ(parse("18446744073709551615", "x").get<std::uint64_t>(), 18446744073709551615U);
  EXPECT_EQ(parse("-9223372036854775808", "x").get<std::int64_t>(), INT64_MIN);
}

TEST(Parse, RefusesADuplicateKeyAtAnyDepth) {
  EXPECT_THAT(read_refusal(R"({"a": 1, "a": 2})"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(read_refusal(R"([{"b": {"c": 1, "d": 2, "c": 3}}])"),
              HasSubstr("duplicate key \"c\""));
  // The same key spelt with an escape is the same key.
  EXPECT_THAT(read_refusal("{\"a\": 1, \"\\u0061\": 2}"), HasSubstr("duplicate key \"a\""));
  EXPECT_EQ(read_refusal(R"({"a": {"a": {"a": 1}}, "b": {"a": 2}})"), "");
}

TEST(Parse, RefusesWhatIsNotJson) {
  for (const char* text :
       {"{",       "[1,]",      "{\"a\":}", "{a: 1}",     "tru",  "'x'",          "[1 2]",
        "01",      "+1",        ".5",       "1.",         "0x10", "{\"a\": 1} x", "1 2",
        "// x\n1", "/* x */ 1", "\"\n\"",   "\"\\x\"",    "NaN",  "Infinity",     "-Infinity",
        "nan",     "[NaN]",     " ",        "\"\\ud800\""}) {
    EXPECT_THAT(read_refusal(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(Parse, SaysWhereTheTextIsBroken) {
  EXPECT_THAT(read_refusal("{\"a\": 1,\n \"b\": }"), HasSubstr("at byte 16"));
}

TEST(Parse, RefusesAnEmptyFile) {
  EXPECT_EQ(read_refusal(""), "config.json: the file is empty");
}

TEST(Parse, RefusesNumbersBeyondADouble) {
  EXPECT_THAT(read_refusal("1e999"), HasSubstr("1e999"));
  EXPECT_THAT(read_refusal("[-1e400]"), HasSubstr("-1e400"));
  EXPECT_EQ(parse("1e308", "x"), 1e308);
}

TEST(Parse, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(read_refusal("\"\xff\""), HasSubstr("expected UTF-8"));
  EXPECT_THAT(read_refusal("\"\xc0\xaf\""), HasSubstr("expected UTF-8"));
  EXPECT_THAT(read_refusal("\"\xed\xa0\x80\""), HasSubstr("expected UTF-8"));
  EXPECT_EQ(parse("\"\xe4\xb8\xad\"", "x"), "\xe4\xb8\xad");
}

TEST(Parse, RefusesAZeroByteAnywhere) {
  using namespace std::string_literals;
  for (const std::string& text : {"{\"a\": 1}\0{"s, "{\0\"a\": 1}"s, "{\"a\": \"b\0c\"}"s}) {
    EXPECT_THROW(static_cast<void>(parse(text, "x.json")), Error) << text;
  }
}

TEST(Parse, BoundsTheDepth) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(read_refusal(nested(64)), "");
  EXPECT_THAT(read_refusal(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(read_refusal(nested(1'000'000)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_EQ(read_refusal(nested(3), {.max_depth = 3}), "");
  EXPECT_THAT(read_refusal(nested(4), {.max_depth = 3}), HasSubstr("deeper than 3"));
}

TEST(Parse, BoundsTheSize) {
  EXPECT_EQ(read_refusal("[1]", {.max_bytes = 3}), "");
  EXPECT_THAT(read_refusal("[11]", {.max_bytes = 3}),
              HasSubstr("4 bytes, more than the limit of 3"));
}

TEST(Parse, ReadsManyKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) {
    text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":1";
  }
  EXPECT_EQ(parse(text + "}", "x").size(), 200'000U);
}

TEST(Parse, TurnsTheInfinityLiteralIntoTextOnlyWhereAsked) {
  const ReadLimits limits{.allow_infinity_literal = true};
  const Json value = parse(
      R"({"limit": [0.0, Infinity, -Infinity], "text": "Infinity \" Infinity"})", "x", limits);
  EXPECT_EQ(value["limit"][1], "Infinity");
  EXPECT_EQ(value["limit"][2], "-Infinity");
  EXPECT_EQ(value["text"], "Infinity \" Infinity");
}

TEST(ParseFile, NamesTheFile) {
  const test::TempDir folder;
  test::write_file(folder / "bad.json", "{\"a\":1,\"a\":1}");
  try {
    (void)parse_file((folder / "bad.json").string());
    FAIL() << "a duplicate key was read";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), (folder / "bad.json").string() + ": duplicate key \"a\"");
  }
  test::write_file(folder / "good.json", "[1]\n");
  EXPECT_EQ(parse_file((folder / "good.json").string()), Json::array({1}));
  EXPECT_THROW((void)parse_file((folder / "none.json").string()), Error);
}

}  // namespace
}  // namespace moe::json
