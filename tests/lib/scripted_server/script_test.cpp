// Goal: a script is read whole or refused with its place; the scripts that come along are right.

#include "lib/scripted_server/script.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/lib/scripted_server/raw_client.hpp"

namespace moe::scripted_server {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  try {
    (void)parse_script(json::parse(text, "script"), "script");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "none";
}

TEST(Script, EveryScenarioIsReadAndSaysWhatItIsFor) {
  int count = 0;
  const std::filesystem::path folder =
      std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/scripted-servers";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const Script script = read_script(entry.path());
    EXPECT_FALSE(script.about.empty()) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 20);
}

TEST(Script, DefaultsApplyToEveryReplyThatDoesNotSayOtherwise) {
  const Script script =
      parse_script(json::parse(R"({"schema_version":1,"defaults":{"timing":{"first_token_s":0.5}},
          "replies":[{},{"times":3,"timing":{"token_interval_s":0.25}}]})",
                               "script"),
                   "script");
  ASSERT_EQ(script.replies.size(), 2U);
  EXPECT_DOUBLE_EQ(script.replies[0].timing.first_token_s, 0.5);
  EXPECT_DOUBLE_EQ(script.replies[1].timing.first_token_s, 0.5);
  EXPECT_DOUBLE_EQ(script.replies[1].timing.token_interval_s, 0.25);
  EXPECT_EQ(script.replies[1].times, 3);
}

TEST(Script, DialectsBringTheirHabits) {
  EXPECT_EQ(test::script_of("{}").replies[0].tokens.reasoning_field, "reasoning");
  EXPECT_EQ(test::script_of("{}", R"({"dialect":"sglang"})").replies[0].tokens.reasoning_field,
            "reasoning_content");
  EXPECT_EQ(test::script_of("{}", R"({"dialect":"llama.cpp"})").replies[0].after,
            AfterReply::kCloseUnannounced);
}

TEST(Script, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_THAT(error_of("{}"), HasSubstr("schema_version"));
  EXPECT_THAT(error_of(R"({"schema_version":2})"), HasSubstr("\"schema_version\": 1"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replys":[]})"), HasSubstr("unknown key \"replys\""));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[]})"), HasSubstr("not empty"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"timing":{"first_token_s":-1}}]})"),
              HasSubstr("script/replies/0/timing/first_token_s: expected a number from 0"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"tokens":{"limit":1.5}}]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"tokens":{"ids":[1,-2]}}]})"),
              HasSubstr("ids: expected an array of token ids"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"tokens":{"texts":[]}}]})"),
              HasSubstr("not empty"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"tokens":{"withheld_every":1}}]})"),
              HasSubstr("no token has an event"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"replies":[{"fault":{"kind":"explode"}}]})"),
              HasSubstr("expected one of none, cut"));
  EXPECT_THAT(error_of(R"({"schema_version":1,"server":[]})"), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace moe::scripted_server
