#include "lib/app/cli.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string input;
  std::vector<std::int64_t> batch = {1, 4};
  std::int64_t seed = 7;
  std::int64_t max_memory = 0;
  double max_time_s = 60.0;
  double temperature = 0.0;
  std::optional<double> until_ci;
  std::string isa = "auto";
  std::vector<std::string> outputs;
  bool is_quiet = false;
};

// Parses "tool go ARGS..."; returns the exit code of the command or the message of the error.
std::string parse(Values& values, const std::vector<const char*>& args) {
  CommandLine line("tool", "A tool.", "tool 1\n");
  Options& options = line.add_command("go", "Goes", [] { return 42; });
  options.positional("INPUT", values.input, "What to read");
  options.integers("--batch", values.batch, {1, 100}, "Batches");
  options.integer("--seed", values.seed, {0}, "Seed");
  options.bytes("--max-memory", values.max_memory, "Memory", "all");
  options.duration("--max-time", values.max_time_s, "Time");
  options.real("--temperature", values.temperature, {0.0, 2.0}, "Temperature");
  options.ratio("--until-ci", values.until_ci, "Interval");
  options.choice("--isa", {"auto", "scalar"}, values.isa, "Level");
  options.texts("-o,--output", "FILE", values.outputs, "Output");
  options.flag("-q,--quiet", values.is_quiet, "Quiet");
  std::vector<const char*> argv = {"tool"};
  for (const char* arg : args) argv.push_back(arg);
  try {
    return std::to_string(line.run(static_cast<int>(argv.size()), argv.data()));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
}

TEST(CommandLine, FillsEveryKindOfOption) {
  Values values;
  EXPECT_EQ(parse(values, {"go",           "dir",        "--batch",    "2,8",    "--seed=3",
                           "--max-memory", "2GiB",       "--max-time", "2m",     "--temperature",
                           "0.5",          "--until-ci", "5%",         "--isa",  "scalar",
                           "-o",           "a.json",     "--output",   "b.html", "-q"}),
            "42");
  EXPECT_EQ(values.input, "dir");
  EXPECT_THAT(values.batch, ElementsAre(2, 8));
  EXPECT_EQ(values.seed, 3);
  EXPECT_EQ(values.max_memory, std::int64_t{2} << 30);
  EXPECT_DOUBLE_EQ(values.max_time_s, 120.0);
  EXPECT_DOUBLE_EQ(values.temperature, 0.5);
  EXPECT_DOUBLE_EQ(values.until_ci.value_or(0.0), 0.05);
  EXPECT_EQ(values.isa, "scalar");
  EXPECT_THAT(values.outputs, ElementsAre("a.json", "b.html"));
  EXPECT_TRUE(values.is_quiet);
}

TEST(CommandLine, KeepsDefaults) {
  Values values;
  EXPECT_EQ(parse(values, {"go", "dir"}), "42");
  EXPECT_THAT(values.batch, ElementsAre(1, 4));
  EXPECT_FALSE(values.is_quiet);
}

TEST(CommandLine, ARepeatableOptionDoesNotSwallowThePositional) {
  Values values;
  EXPECT_EQ(parse(values, {"go", "-o", "a.json", "dir"}), "42");
  EXPECT_EQ(values.input, "dir");
}

TEST(CommandLine, SaysWhatIsWrong) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{}, "expected a command"},
      {{"stay"}, "stay"},
      {{"go"}, "INPUT"},
      {{"go", "a", "b"}, "b"},
      {{"go", "a", "--nothing"}, "--nothing"},
      {{"go", "a", "--batch", "1,,2"}, "--batch: empty value"},
      {{"go", "a", "--batch", "0"}, "--batch: expected an integer from 1 to 100, found \"0\""},
      {{"go", "a", "--batch", "1x"}, "found \"1x\""},
      {{"go", "a", "--batch", "99999999999999999999"}, "--batch"},
      {{"go", "a", "--seed", "-1"}, "--seed: expected an integer of 0 or more"},
      {{"go", "a", "--seed", "1", "--seed", "2"}, "--seed"},
      {{"go", "a", "--max-memory", "many"}, "--max-memory: expected a size"},
      {{"go", "a", "--max-time", "-1s"}, "--max-time"},
      {{"go", "a", "--temperature", "nan"}, "--temperature"},
      {{"go", "a", "--temperature", "3"}, "0 to 2"},
      {{"go", "a", "--isa", "mmx"}, "expected one of auto, scalar, found \"mmx\""},
      {{"go", "a", "-o"}, "--output"},
  };
  for (const auto& [args, message] : cases) {
    Values values;
    EXPECT_THAT(parse(values, args), HasSubstr(message));
  }
}

TEST(CommandHelp, ShowsGroupsDefaultsAndExamples) {
  Values values;
  Options options([](const std::string&, bool, bool,
                     const std::function<void(const std::vector<std::string>&)>&) {});
  options.positional("INPUT", values.input, "What to read");
  options.group("How to measure");
  options.integers("--batch", values.batch, {1, 100}, "Requests that run together");
  options.bytes("--max-memory", values.max_memory, "Memory", "what is there");
  options.group("Output");
  options.flag("-q,--quiet", values.is_quiet, "Nothing on stderr");
  options.example("tool go dir", "Goes there");
  const std::string help = command_help("tool", "go", "Goes", options);
  EXPECT_THAT(help, HasSubstr("Usage: tool go INPUT [options]"));
  EXPECT_THAT(help, HasSubstr("How to measure:\n  --batch N,N,..."));
  EXPECT_THAT(help, HasSubstr("[default: 1,4]"));
  EXPECT_THAT(help, HasSubstr("[default: what is there]"));
  EXPECT_THAT(help, HasSubstr("Output:\n  -q, --quiet"));
  EXPECT_THAT(help, HasSubstr("Examples:\n  tool go dir"));
  std::size_t begin = 0;
  while (begin < help.size()) {
    const std::size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(ParseIntegers, LimitsTheLengthOfAList) {
  std::string text = "1";
  for (int i = 0; i < 256; ++i) text += ",1";
  EXPECT_THROW((void)parse_integers(text, {1}, "--batch"), Error);
}

}  // namespace
}  // namespace moe::app
