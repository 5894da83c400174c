// Goal: what a request asks for is read from every form that clients send, and refused in words.

#include "lib/scripted_server/generation_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::scripted_server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

GenerationRequest read(const std::string& body, bool is_chat) {
  GenerationRequestReader reader;
  GenerationRequest request;
  EXPECT_THAT(reader.read(body, is_chat, request), IsEmpty()) << body;
  return request;
}

std::string refusal(const std::string& body, bool is_chat = false) {
  GenerationRequestReader reader;
  GenerationRequest request;
  return reader.read(body, is_chat, request);
}

TEST(GenerationRequest, PromptTokensAreIdsOrWords) {
  EXPECT_EQ(read(R"({"prompt":[5,6,7]})", false).prompt_tokens, 3);
  EXPECT_EQ(read(R"({"prompt":" a  bc\nd "})", false).prompt_tokens, 3);
  EXPECT_EQ(read(R"({"prompt":""})", false).prompt_tokens, 0);
  const std::string chat =
      R"({"messages":[{"role":"system","content":"be brief"},
          {"role":"user","content":[{"type":"text","text":"a b c"},{"type":"image_url"}]},
          {"role":"assistant","content":null}]})";
  EXPECT_EQ(read(chat, true).prompt_tokens, 5);
}

TEST(GenerationRequest, OptionsAreReadAndNullIsAbsent) {
  const GenerationRequest request = read(
      R"({"prompt":"x","model":"m","stream":true,"max_tokens":7,"return_token_ids":true,
          "stream_options":{"include_usage":true,"continuous_usage_stats":true}})",
      false);
  EXPECT_TRUE(request.stream && request.include_usage && request.continuous_usage);
  EXPECT_TRUE(request.return_token_ids);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.model, "m");
  EXPECT_FALSE(
      read(R"({"prompt":"x","stream":null,"stream_options":null,"max_tokens":null,"n":null})",
           false)
          .stream);
  EXPECT_EQ(read(R"({"messages":[{}],"max_completion_tokens":9})", true).max_tokens, 9);
}

TEST(GenerationRequest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refusal(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{\"prompt\":"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("prompt"));
  EXPECT_THAT(refusal(R"({"prompt":["a","b"]})"), HasSubstr("prompt"));
  EXPECT_THAT(refusal(R"({"messages":[]})", true), HasSubstr("messages"));
  EXPECT_THAT(refusal(R"({"messages":["x"]})", true), HasSubstr("messages"));
  EXPECT_THAT(refusal(R"({"prompt":"x","max_tokens":0})"), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal(R"({"prompt":"x","max_tokens":1e30})"), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal(R"({"prompt":"x","stream":1})"), HasSubstr("stream"));
  EXPECT_THAT(refusal(R"({"prompt":"x","n":2})"), HasSubstr("n must be 1"));
  EXPECT_THAT(refusal(R"({"prompt":"x","stream_options":{}})"), HasSubstr("stream"));
  std::string deep(5000, '[');
  EXPECT_THAT(refusal("{\"prompt\":" + deep), HasSubstr("not a JSON object"));
}

}  // namespace
}  // namespace moe::scripted_server
