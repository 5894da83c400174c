// Goal: moe-bench scripted-server serves until it is interrupted, says where, and keeps its log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/process.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(ScriptedServerCommand, SaysItsAddressAndEndsOnInterrupt) {
  const TempDir folder;
  const std::string log = (folder / "sends.jsonl").string();
  ProcessOptions options;
  options.interrupt_after_s = 0.5;
  const ProcessResult result =
      run_moe_bench({"scripted-server", "steady", "--port", "0", "--log", log}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_THAT(result.err, HasSubstr("0 requests"));
  EXPECT_EQ(read_file(log), "");
}

TEST(ScriptedServerCommand, WhatCannotBeServedIsSaidAtOnce) {
  const TempDir folder;
  write_file(folder / "wrong.json",
             R"({"schema_version": 1, "replies": [{"tokens": {"limt": 1}}]})");
  const ProcessResult wrong =
      run_moe_bench({"scripted-server", (folder / "wrong.json").string(), "--port", "0"});
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_THAT(wrong.err, HasSubstr("replies/0/tokens: unknown key \"limt\""));
  EXPECT_EQ(run_moe_bench({"scripted-server", "no-such-script"}).exit_code, 3);
  EXPECT_EQ(run_moe_bench({"scripted-server", "steady", "--port", "70000"}).exit_code, 2);
  EXPECT_EQ(run_moe_bench({"scripted-server", "steady", "--host", "nowhere"}).exit_code, 2);
  EXPECT_EQ(run_moe_bench({"scripted-server", "steady", "--log", "/no/such/dir/x"}).exit_code, 2);
  scripted_server::Script script;
  script.replies.emplace_back();
  script.replies[0].tokens.texts = {" a"};
  const scripted_server::ServerThread taken(script);
  const ProcessResult second =
      run_moe_bench({"scripted-server", "steady", "--port", std::to_string(taken.port())});
  EXPECT_EQ(second.exit_code, 5);
  EXPECT_THAT(second.err, HasSubstr("cannot listen on"));
}

}  // namespace
}  // namespace moe::test
