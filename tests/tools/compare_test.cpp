// Goal: compare puts a checkpoint in this process beside servers, with the same requests and the
// same definitions, and says whether the greedy tokens are equal. Method: the real binary; the
// server is a script that sends what moe-bench generate gave for the same prompt, a path of its own
// through the engine.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using scripted_server::ServerThread;
using ::testing::HasSubstr;

constexpr int kAnswerTokens = 8;
const char* const kPromptText = "The machine counts what it reads";

struct Answer {
  std::vector<int> ids;
  std::string text;
};

Answer generated() {
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("tinymoe-qwen3"), "--prompt", kPromptText, "-n",
                     std::to_string(kAnswerTokens), "--ignore-eos", "--format", "json", "--quiet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json document = json::parse(result.out, "stdout");
  const Json& row = document.at("tables").at("generated").at("rows").at(0);
  const Json ids = json::parse("[" + row.at(0).get<std::string>() + "]", "ids");
  return {ids.get<std::vector<int>>(), row.at(1).get<std::string>()};
}

// Sends these ids, or none, and the whole text with the first token.
scripted_server::Script echo(const Answer& answer, bool has_ids) {
  Json tokens;
  tokens["ids"] = answer.ids;
  tokens["texts"] = std::vector<std::string>(answer.ids.size());
  tokens["texts"][0] = answer.text;
  Json reply;
  reply["timing"] = {{"first_token_s", 0.01}, {"token_interval_s", 0.001}};
  reply["tokens"] = tokens;
  reply["events"] = {{"token_ids", has_ids ? "as_asked" : "never"}};
  Json document;
  document["schema_version"] = 1;
  document["replies"] = Json::array({reply});
  return scripted_server::parse_script(json::parse(document.dump(), "script"), "script");
}

std::string prompt_file(const TempDir& dir) {
  const std::string file = (dir / "prompts.jsonl").string();
  std::ofstream(file) << R"({"prompt": ")" << kPromptText << "\"}\n";
  return file;
}

std::vector<std::string> comparison(const std::string& url, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"compare",
                                   "there=" + url,
                                   "--in-process",
                                   "here=" + checkpoint("tinymoe-qwen3"),
                                   "--output-tokens",
                                   std::to_string(kAnswerTokens),
                                   "--accept-client-bound"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Json compare_one_prompt(const scripted_server::Script& script) {
  const TempDir dir;
  ServerThread server(script);
  return bench_report(comparison(
      server.url(), {"--dataset", prompt_file(dir), "--requests", "1", "--rounds", "1"}));
}

TEST(CompareInProcess, EqualTokensAreSaidToBeEqual) {
  const Json report = compare_one_prompt(echo(generated(), true));
  EXPECT_EQ(report.at("metrics").at("answers_equal_ratio.here").at("value"), 1.0);
  const Json* finding = finding_of(report, "compare.answers_equal");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->at("message").get<std::string>(), HasSubstr("1 by token ids"));
}

TEST(CompareInProcess, WithoutIdsTheTextsAreCompared) {
  const Json report = compare_one_prompt(echo(generated(), false));
  EXPECT_EQ(report.at("metrics").at("answers_equal_ratio.here").at("value"), 1.0);
  const Json* finding = finding_of(report, "compare.answers_equal");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->at("message").get<std::string>(), HasSubstr("1 by text"));
}

TEST(CompareInProcess, TheFirstOtherTokenIsNamed) {
  Answer answer = generated();
  const int right = answer.ids.at(5);
  answer.ids.at(5) = right == 17 ? 18 : 17;
  const Json report = compare_one_prompt(echo(answer, true));
  EXPECT_EQ(report.at("metrics").at("answers_equal_ratio.here").at("value"), 0.0);
  const Json* finding = finding_of(report, "compare.answers_differ");
  ASSERT_NE(finding, nullptr);
  const Json& evidence = finding->at("evidence");
  EXPECT_EQ(evidence.at("request"), 0);
  EXPECT_EQ(evidence.at("position"), 5);
  EXPECT_EQ(evidence.at("here"), "token " + std::to_string(right));
  EXPECT_EQ(evidence.at("there"), "token " + std::to_string(answer.ids.at(5)));
}

// The records of both sides follow one set of definitions: the report's figures come out of them.
TEST(CompareInProcess, TheSameRequestsGiveTheSameKindOfFigures) {
  const TempDir dir;
  ServerThread server(echo(generated(), true));
  const std::string lines = (dir / "requests.jsonl").string();
  const Json report = bench_report(
      comparison(server.url(), {"--prompt-tokens", "5-9", "--requests", "5", "--rounds", "2",
                                "--concurrency", "2", "--requests-jsonl", lines}));
  EXPECT_EQ(report.at("tables").at("servers").at("rows").size(), 2U);
  EXPECT_EQ(report.at("settings").at("in_process").at("batch"), 2);
  std::vector<Json> here;
  std::vector<Json> there;
  std::ifstream file(lines);
  for (std::string line; std::getline(file, line);) {
    const Json request = json::parse(line, "line");
    (request.at("load") == "here" ? here : there).push_back(request);
  }
  ASSERT_EQ(here.size(), 10U);
  ASSERT_EQ(there.size(), 10U);
  const auto by_conversation = [](const Json& a, const Json& b) {
    return a.at("conversation").get<int>() < b.at("conversation").get<int>();
  };
  std::sort(there.begin(), there.end(), by_conversation);
  double first_s = 1e9;
  double last_s = 0.0;
  double least_ttft_s = 1e9;
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].at("conversation"), there[i].at("conversation"));
    EXPECT_EQ(here[i].at("requested_prompt_tokens"), there[i].at("requested_prompt_tokens"));
    EXPECT_EQ(here[i].at("output_tokens"), kAnswerTokens);
    EXPECT_EQ(here[i].at("token_source"), "token_ids");
    const double sent_s = here[i].at("sent_s").get<double>();
    first_s = std::min(first_s, sent_s);
    last_s = std::max(last_s, here[i].at("end_s").get<double>());
    least_ttft_s = std::min(least_ttft_s, here[i].at("first_token_s").get<double>() - sent_s);
  }
  // Batches of 2, 2 and 1 in each round: requests of a batch start at the same moment.
  EXPECT_EQ(here[0].at("sent_s"), here[1].at("sent_s"));
  EXPECT_GE(here[2].at("sent_s").get<double>(), here[1].at("end_s").get<double>());
  const Json& metrics = report.at("metrics");
  EXPECT_NEAR(metrics.at("output_tokens_per_s.here").at("value").get<double>(),
              10.0 * kAnswerTokens / (last_s - first_s), 1e-6 * 10.0 * kAnswerTokens);
  EXPECT_NEAR(metrics.at("ttft_s.here").at("distribution").at("min").get<double>(), least_ttft_s,
              1e-9);
  EXPECT_FALSE(metrics.contains("client_send_lag_s.here"));
  EXPECT_TRUE(metrics.contains("client_send_lag_s.there"));
}

TEST(CompareInProcess, SampledAnswersAreNotCompared) {
  const TempDir dir;
  ServerThread server(echo(generated(), true));
  const Json report =
      bench_report(comparison(server.url(), {"--dataset", prompt_file(dir), "--requests", "1",
                                             "--rounds", "1", "--temperature", "1"}));
  EXPECT_FALSE(report.at("tables").contains("answers"));
}

TEST(CompareInProcess, WhatABatchCannotDoIsRefusedInOneLine) {
  const TempDir dir;
  const std::string chats = (dir / "chats.jsonl").string();
  std::ofstream(chats) << R"({"turns": ["one", "two"]})"
                       << "\n";
  struct Case {
    std::vector<std::string> more;
    int code;
    const char* words;
  };
  for (const Case& one : std::vector<Case>{{{"--rate", "3"}, 2, "--concurrency"},
                                           {{"--duration", "3s"}, 2, "--requests"},
                                           {{"--until-ci", "5%"}, 2, "--until-ci"},
                                           {{"--think-time", "1s"}, 2, "--think-time"},
                                           {{"--api", "chat"}, 2, "template"},
                                           {{"--dataset", chats}, 2, "single prompts"}}) {
    std::vector<std::string> args = comparison("127.0.0.1:9", one.more);
    args.emplace_back("--quiet");
    const ProcessResult result = run_moe_bench(args);
    EXPECT_EQ(result.exit_code, one.code) << one.words << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(one.words));
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
  }
  for (const Case& one : std::vector<Case>{
           {{"compare", "--in-process", "here=x"}, 2, "NAME=URL"},
           {{"compare", "a=http://x", "--in-process", "a=x"}, 2, "once"},
           {{"compare", "a=http://x", "--in-process", "x"}, 2, "--in-process NAME=DIR"},
           {{"compare", "a=http://x", "--in-process", "b=/nonexistent"}, 3, "nonexistent"}}) {
    const ProcessResult result = run_moe_bench(one.more);
    EXPECT_EQ(result.exit_code, one.code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(one.words));
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
  }
}

TEST(CompareInProcess, APromptBeyondTheContextIsRefused) {
  ServerThread server(echo(generated(), true));
  const ProcessResult result =
      run_moe_bench(comparison(server.url(), {"--prompt-tokens", "1000000"}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("exceed the context"));
}

}  // namespace
}  // namespace moe::test
