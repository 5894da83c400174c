// Goal: the command line keeps its promises whatever the command does. Method: the real binary.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/process.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string>& commands() {
  static const std::vector<std::string> names = {"run",      "limits", "verify",
                                                 "generate", "eval",   "inspect",
                                                 "synth",    "import", "scripted-server"};
  return names;
}

TEST(Usage, HelpListsEveryCommand) {
  const ProcessResult result = run_moe_bench({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  for (const std::string& command : commands()) {
    EXPECT_THAT(result.out, HasSubstr("\n  " + command + " "));
  }
}

TEST(Usage, EveryCommandHasHelpWithDefaults) {
  for (const std::string& command : commands()) {
    const ProcessResult result = run_moe_bench({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, HasSubstr("Usage: moe-bench " + command));
    EXPECT_THAT(result.out, HasSubstr("[default: "));
    EXPECT_THAT(result.out, HasSubstr("Output:"));
    EXPECT_THAT(result.out, HasSubstr("--quiet"));
  }
}

TEST(Usage, VersionNamesCommitBuildAndBackends) {
  const ProcessResult result = run_moe_bench({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("moe-bench 0."));
  EXPECT_THAT(result.out, HasSubstr("commit"));
  EXPECT_THAT(result.out, HasSubstr("build"));
  EXPECT_THAT(result.out, HasSubstr("backends: cpu"));
}

TEST(Usage, ListBackendsSaysWhyOneIsMissing) {
  const ProcessResult result = run_moe_bench({"--list-backends"});
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string backend : {"cpu", "cuda", "nccl", "mpi"}) {
    EXPECT_THAT(result.out, HasSubstr(backend));
  }
  EXPECT_THAT(result.out, HasSubstr("cpu     available"));
}

struct BadUsage {
  std::vector<std::string> args;
  std::string mention;
};

class UsageError : public ::testing::TestWithParam<BadUsage> {};

TEST_P(UsageError, IsOneLineAndExitCodeTwo) {
  const ProcessResult result = run_moe_bench(GetParam().args);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_EQ(count_lines(result.err), 1) << result.err;
  EXPECT_THAT(result.err, StartsWith("moe-bench: error: "));
  EXPECT_THAT(result.err, HasSubstr(GetParam().mention));
}

INSTANTIATE_TEST_SUITE_P(
    All, UsageError,
    ::testing::Values(
        BadUsage{{}, "expected a command"}, BadUsage{{"walk"}, "walk"},
        BadUsage{{"run"}, "CHECKPOINT"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--batch", "0"}, "--batch"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--batch", "1,x"}, "\"x\""},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--until-ci", "many"}, "--until-ci"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--nothing"}, "--nothing"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--format", "yaml"}, "yaml"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--output", "report.xyz"}, "report.xyz"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--output", "/nowhere/x.json"}, "/nowhere"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--output", "/tmp", "-o", "json:/tmp"}, "/tmp"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "-o", "json:-", "-o", "-"}, "stdout"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--dump-routing", "/nowhere/t"}, "/nowhere"},
        BadUsage{{"run", checkpoint("qwen3-dense-a"), "--dump-routing", "t.safetensors"}, "dense"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--require", "no.such.item"}, "no.such.item"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--prompt-tokens", "100000"}, "context"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--prompt-tokens", "8", "--max-memory", "1kB"},
                 "memory"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--top-k", "999"}, "--top-k"},
        BadUsage{{"run", checkpoint("qwen3moe-a"), "--isa", "mmx"}, "mmx"},
        BadUsage{{"generate", checkpoint("qwen3moe-a")}, "--prompt"},
        BadUsage{{"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1,999999"}, "999999"},
        BadUsage{{"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1,,2"}, "--prompt-ids"},
        BadUsage{{"eval", checkpoint("qwen3moe-a"), "--window-tokens", "1000000"}, "context"},
        BadUsage{{"synth", "OLMoE-1B-7B"}, "--out"},
        BadUsage{{"inspect", checkpoint("qwen3moe-a"), "--scenarios", "/nowhere"}, "/nowhere"}));

TEST(Usage, AForcedLevelThatTheMachineLacksIsExitCodeFour) {
  // No machine of today's tests has every level: scalar is always there, so look for one that is
  // not among those listed as supported.
  for (const char* isa : {"avx512_bf16", "amx"}) {
    const ProcessResult result =
        run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1", "--isa", isa});
    if (result.exit_code == 0) continue;  // it is there
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_THAT(result.err, HasSubstr(isa));
    EXPECT_EQ(count_lines(result.err), 1);
  }
}

TEST(Usage, TheEnvironmentCanForceTheLevel) {
  ProcessOptions options;
  options.environment = {"MOE_CPU_ISA=nonsense"};
  const ProcessResult bad =
      run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1"}, options);
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("MOE_CPU_ISA"));
  options.environment = {"MOE_CPU_ISA=scalar"};
  const ProcessResult good = run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids",
                                            "1", "--max-tokens", "2", "--format", "json"},
                                           options);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("\"isa_in_use\": \"scalar\""));
}

TEST(Usage, QuietSaysNothingOnStderr) {
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1,2,3", "-q"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, Not(IsEmpty()));
}

TEST(Usage, AClosedPipeEndsTheOutputQuietly) {
  ProcessOptions options;
  options.closes_stdout_early = true;
  const ProcessResult result = run_moe_bench(
      {"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "1,2,3", "-n", "40", "-q"}, options);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
}

}  // namespace
}  // namespace moe::test
