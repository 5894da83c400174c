// Goal: moe-bench serve and compare leave one valid report, whatever the server does. Method: the
// real binary against scripted servers in this process.

#include <filesystem>
#include <fstream>
#include <sstream>
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
using ::testing::Not;

scripted_server::Script script_of(const std::string& json) {
  Json document = json::parse(json, "script");
  document["schema_version"] = 1;
  return scripted_server::parse_script(document, "script");
}

scripted_server::Script steady() {
  return script_of(
      R"({"replies": [{"timing": {"first_token_s": 0.01, "token_interval_s": 0.002}}]})");
}

// A busy machine may make the client late; that has its own tests.
ProcessResult serve(const std::string& url, const std::vector<std::string>& more,
                    const ProcessOptions& options = {}) {
  std::vector<std::string> args = {
      "serve", url,       "--output-tokens",      "8", "--prompt-tokens", "5", "--format",
      "json",  "--quiet", "--accept-client-bound"};
  args.insert(args.end(), more.begin(), more.end());
  return run_moe_bench(args, options);
}

TEST(Serve, MeasuresASweepOfClients) {
  ServerThread server(steady());
  TempDir dir;
  const std::string lines = (dir / "requests.jsonl").string();
  const ProcessResult result =
      serve(server.url(), {"--concurrency", "1,2,4", "--requests", "20", "--configured", "4",
                           "--requests-jsonl", lines});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = checked_report(result);
  EXPECT_EQ(report.at("subject").at("kind"), "server");
  EXPECT_EQ(report.at("tables").at("loads").at("rows").size(), 3U);
  EXPECT_EQ(value_of(report, "requests_succeeded_count.c4"), 20.0);
  EXPECT_EQ(value_of(report, "output_tokens_count"), 160.0);
  EXPECT_GE(report.at("metrics").at("ttft_s").at("distribution").at("min").get<double>(), 0.01);
  EXPECT_NE(acceptance_of(report, "batch.tuned"), "not_measured");
  int num_lines = 0;
  std::ifstream file(lines);
  for (std::string line; std::getline(file, line); ++num_lines) {
    const Json request = json::parse(line, "line");
    EXPECT_EQ(request.at("result"), "ok");
    EXPECT_EQ(request.at("token_source"), "token_ids");
    EXPECT_EQ(request.at("arrivals_s").size(), request.at("arrival_tokens").size());
  }
  EXPECT_EQ(num_lines, 60);
}

TEST(Serve, OpenLoopsTracesAndCurvesRun) {
  ServerThread server(steady());
  TempDir dir;
  const std::string trace = (dir / "trace.csv").string();
  std::ofstream(trace) << "arrival_s,input_tokens,output_tokens\n0,5,4\n0.05,6,3\n0.1,7,2\n";
  EXPECT_EQ(value_of(checked_report(serve(server.url(), {"--rate", "200", "--requests", "30"})),
                     "requests_succeeded_count"),
            30.0);
  const Json replay = checked_report(serve(server.url(), {"--trace", trace}));
  EXPECT_EQ(value_of(replay, "requests_succeeded_count"), 3.0);
  EXPECT_EQ(value_of(replay, "output_tokens_count"), 9.0);
  EXPECT_EQ(value_of(replay, "input_tokens_count"), 18.0);
  for (const std::vector<std::string>& curve :
       {std::vector<std::string>{"--ramp", "20:100", "--duration", "0.5s"},
        std::vector<std::string>{"--rate-series", "0:50,0.3:100,0.5:10"}}) {
    EXPECT_GT(value_of(checked_report(serve(server.url(), curve)), "requests_succeeded_count"),
              5.0);
  }
}

TEST(Serve, StressOfATraceIsJudged) {
  ServerThread server(steady());
  TempDir dir;
  const std::string trace = (dir / "trace.csv").string();
  std::ofstream(trace) << "arrival_s,input_tokens,output_tokens\n0,5,2\n0.002,6,2\n0.004,7,2\n";
  const Json report = checked_report(serve(server.url(), {"--trace", trace, "--stress"}));
  EXPECT_GE(value_of(report, "load_over_trace_peak_ratio"), 1.5);
  EXPECT_EQ(value_of(report, "requests_count"), 500.0);
  EXPECT_EQ(acceptance_of(report, "stress.p99"), "pass");
}

TEST(Serve, SearchesTheKnee) {
  scripted_server::Script script = steady();
  script.slots = 2;
  ServerThread server(script);
  const ProcessResult result =
      serve(server.url(), {"--concurrency", "1", "--knee", "--slo-ttft", "20ms", "--slo-share",
                           "0.8", "--requests", "20"});
  const Json report = checked_report(result);
  EXPECT_TRUE(report.at("metrics").contains("knee_load")) << result.err;
  EXPECT_GE(report.at("tables").at("loads").at("rows").size(), 2U);
}

TEST(Serve, FailuresAreNamedAndKeptOutOfTheFigures) {
  ServerThread server(script_of(
      R"({"replies": [{"times": 3, "timing": {"first_token_s": 0.01, "token_interval_s": 0.001}},
                      {"timing": {"first_token_s": 0.01, "token_interval_s": 0.001},
                       "fault": {"kind": "error_event", "after_tokens": 2}}]})"));
  const ProcessResult result =
      serve(server.url(), {"--requests", "40", "--concurrency", "2", "--warmup", "0"});
  EXPECT_EQ(result.exit_code, 0);
  const Json report = checked_report(result);
  EXPECT_TRUE(has_finding(report, "serve.failures"));
  EXPECT_EQ(report.at("tables").at("failures").at("rows").at(0).at(1), "error_event");
  EXPECT_EQ(value_of(report, "requests_count"), 40.0);
  EXPECT_EQ(report.at("metrics").at("ttft_s").at("distribution").at("count").get<double>(),
            value_of(report, "requests_succeeded_count"));
}

TEST(Serve, NothingSucceedsIsNoResult) {
  ServerThread server(script_of(
      R"({"replies": [{"times": 1, "timing": {"first_token_s": 0.01, "token_interval_s": 0.001}},
                      {"times": 1000, "timing": {"first_token_s": 0.01, "token_interval_s": 0.001},
                       "fault": {"kind": "clean_cut", "after_tokens": 2}}]})"));
  const ProcessResult result = serve(server.url(), {"--requests", "5", "--warmup", "0"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  const Json report = checked_report(result);
  EXPECT_TRUE(report.at("metrics").at("ttft_s").at("value").is_null());
  EXPECT_FALSE(report.at("validity").at("valid").get<bool>());
}

TEST(Serve, ADyingServerLeavesAPartialReport) {
  scripted_server::Script script = steady();
  script.dies_after_requests = 40;
  ServerThread server(script);
  const ProcessResult result =
      serve(server.url(), {"--requests", "100000", "--concurrency", "4", "--warmup", "0"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const Json report = checked_report(result);
  EXPECT_TRUE(report.at("validity").at("partial").get<bool>());
  EXPECT_TRUE(has_finding(report, "server.gone"));
  EXPECT_GT(value_of(report, "requests_succeeded_count"), 10.0);
}

TEST(Serve, CtrlCLeavesAPartialReport) {
  ServerThread server(steady());
  ProcessOptions options;
  options.interrupt_after_s = 1.5;
  const ProcessResult result =
      serve(server.url(), {"--duration", "600s", "--concurrency", "2"}, options);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const Json report = checked_report(result);
  EXPECT_TRUE(report.at("validity").at("partial").get<bool>());
  EXPECT_GT(value_of(report, "requests_succeeded_count"), 0.0);
}

TEST(Serve, TheKeyReachesTheServerAndNoReport) {
  scripted_server::Script script = steady();
  script.api_key = "sk-very-secret";
  ServerThread server(script);
  TempDir dir;
  const std::string file = (dir / "key").string();
  std::ofstream(file) << "sk-very-secret\n";
  const std::string html = (dir / "report.html").string();
  const ProcessResult with = serve(
      server.url(), {"--api-key-file", file, "--requests", "4", "--output", "-", "--output", html});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  for (const std::string& text : {with.out, with.err, read_file(html)}) {
    EXPECT_THAT(text, Not(HasSubstr("very-secret")));
  }
  ProcessOptions environment;
  environment.environment = {"MY_KEY=sk-very-secret"};
  EXPECT_EQ(
      serve(server.url(), {"--api-key-env", "MY_KEY", "--requests", "4"}, environment).exit_code,
      0);
  EXPECT_EQ(serve(server.url(), {"--requests", "4"}).exit_code, 5);
}

TEST(Serve, ProxiesOfTheEnvironmentAreLeftAlone) {
  ServerThread server(steady());
  ProcessOptions options;
  options.environment = {"http_proxy=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9",
                         "ALL_PROXY=http://127.0.0.1:9"};
  EXPECT_EQ(serve(server.url(), {"--requests", "4"}, options).exit_code, 0);
}

TEST(Serve, WrongUseIsOneLine) {
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* words;
  };
  for (const Case& one : std::vector<Case>{
           {{"serve", "ftp://x"}, 2, "scheme"},
           {{"serve", "http://u:p@x"}, 2, "--api-key-file"},
           {{"serve", "x", "--rate", "3", "--concurrency", "2"}, 2, "one of"},
           {{"serve", "x", "--rate", "-3"}, 2, "--rate"},
           {{"serve", "x", "--knee"}, 2, "service level"},
           {{"serve", "x", "--prompt-tokens", "many"}, 2, "--prompt-tokens"},
           {{"serve", "x", "--trace", "/nonexistent.csv"}, 3, "nonexistent"},
           {{"serve", "x", "--dataset", "/nonexistent.json"}, 3, "nonexistent"},
           {{"serve", "x", "--api-key-env", "NO_SUCH_KEY"}, 3, "NO_SUCH_KEY"},
           {{"serve", "127.0.0.1:9", "--ready-timeout", "0.3s"}, 5, "no server answered"},
           {{"compare", "a=http://x"}, 2, "two servers"},
           {{"compare", "a=http://x", "a=http://y"}, 2, "once"}}) {
    const ProcessResult result = run_moe_bench(one.args);
    EXPECT_EQ(result.exit_code, one.code) << one.args.back() << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(one.words));
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
  }
}

TEST(Compare, PutsTheSameLoadOnSeveralServers) {
  ServerThread fast(steady());
  ServerThread slow(script_of(
      R"({"server": {"dialect": "sglang"},
          "replies": [{"timing": {"first_token_s": 0.05, "token_interval_s": 0.002}}]})"));
  const ProcessResult result =
      run_moe_bench({"compare", "fast=" + fast.url(), "slow=" + slow.url(), "--concurrency", "2",
                     "--requests", "15", "--rounds", "2", "--output-tokens", "4", "--prompt-tokens",
                     "6", "--format", "json", "--quiet", "--accept-client-bound"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = checked_report(result);
  EXPECT_EQ(report.at("tables").at("servers").at("rows").size(), 2U);
  EXPECT_EQ(value_of(report, "requests_succeeded_count.fast"), 30.0);
  EXPECT_EQ(value_of(report, "requests_succeeded_count.slow"), 30.0);
  const Json& ratio = report.at("tables").at("ratios").at("rows").at(0);
  EXPECT_EQ(ratio.at(1), "ttft_s");
  EXPECT_GT(ratio.at(2).get<double>(), 1.0);
}

}  // namespace
}  // namespace moe::test
