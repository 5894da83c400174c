#include "lib/json/write.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::json {
namespace {

std::string refusal(const Json& document) {
  try {
    (void)dump(document, "report");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    return error.what();
  }
  return {};
}

TEST(Dump, KeepsTheOrderOfKeys) {
  Json document;
  document["z"] = 1;
  document["a"] = Json::array({1, "x"});
  EXPECT_EQ(dump(document, "x", {.indent = -1}), R"({"z":1,"a":[1,"x"]})");
  EXPECT_EQ(dump(document, "x"), "{\n  \"z\": 1,\n  \"a\": [\n    1,\n    \"x\"\n  ]\n}");
}

TEST(Dump, RefusesWhatJsonCannotHold) {
  const double inf = std::numeric_limits<double>::infinity();
  Json document;
  document["metrics"]["ttft_s"]["value"] = std::nan("");
  EXPECT_EQ(refusal(document), "report: /metrics/ttft_s/value is nan, and JSON has no such number");
  EXPECT_EQ(refusal(Json::array({1, Json::array({2.0, -inf})})),
            "report: /1/1 is -inf, and JSON has no such number");
  EXPECT_EQ(refusal(Json(inf)), "report: the document is inf, and JSON has no such number");
  Json slashed;
  slashed["a/b~c"] = inf;
  EXPECT_EQ(refusal(slashed), "report: /a~1b~0c is inf, and JSON has no such number");
}

TEST(Dump, WritesDoublesThatReadBackTheSame) {
  for (const double value :
       {0.1 + 0.2, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 1e21, 123456789.123456789}) {
    const std::string text = dump(Json(value), "x");
    EXPECT_EQ(parse(text, "x").get<double>(), value) << text;
  }
}

TEST(Dump, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump(Json("a\xff"
                      "b"),
                 "x"),
            "\"a\xef\xbf\xbd"
            "b\"");
}

TEST(WriteFile, EndsWithANewline) {
  const test::TempDir folder;
  write_file(folder / "out.json", Json::array({1}), {.indent = -1});
  EXPECT_EQ(test::read_file(folder / "out.json"), "[1]\n");
}

TEST(WriteFile, LeavesNoFileWhenItRefuses) {
  const test::TempDir folder;
  EXPECT_THROW(write_file(folder / "out.json", Json(std::nan(""))), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PointerTo, EscapesAsRfc6901Says) {
  EXPECT_EQ(pointer_to("", "a"), "/a");
  EXPECT_EQ(pointer_to("/x", "m~n/o"), "/x/m~0n~1o");
}

}  // namespace
}  // namespace moe::json
