// Goal: every broken checkpoint is refused in one line that names what is wrong, and the good ones
// beside them load. Method: each directory of tests/data/bad-checkpoints through the real binary,
// against its expected.json.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "tests/tools/process.hpp"

namespace moe::test {
namespace {

using json::Json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kFolder = MOE_SOURCE_DIR "/tests/data/bad-checkpoints";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (std::filesystem::exists(entry.path() / "expected.json")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class BadCheckpoint : public ::testing::TestWithParam<std::string> {};

// What the case accepts instead: exit code 0 with a warning that mentions these.
bool is_accepted_with_warning(const Json& expected, const ProcessResult& result) {
  if (!expected.contains("also_accept") || result.exit_code != 0) return false;
  for (const Json& text : expected.at("also_accept").at("warning_must_mention")) {
    const auto wanted = text.get<std::string>();
    if (result.out.find(wanted) == std::string::npos &&
        result.err.find(wanted) == std::string::npos) {
      return false;
    }
  }
  return true;
}

TEST_P(BadCheckpoint, EndsAsExpected) {
  const std::filesystem::path directory = kFolder / GetParam();
  const Json expected = json::parse_file((directory / "expected.json").string());
  const bool needs_text = expected.contains("when");
  const std::vector<std::vector<std::string>> commands =
      needs_text ? std::vector<std::vector<std::string>>{{"generate", directory.string(), "-n", "2",
                                                          "--prompt", "Hello"}}
                 : std::vector<std::vector<std::string>>{
                       {"inspect", directory.string()},
                       {"generate", directory.string(), "-n", "2", "--prompt-ids", "1,2,3"}};
  const auto num_files = [&] {
    return std::distance(std::filesystem::directory_iterator(directory), {});
  };
  const auto files_before = num_files();
  for (const std::vector<std::string>& command : commands) {
    const ProcessResult result = run_moe_bench(command);
    ASSERT_EQ(result.signal, 0) << command.front();
    EXPECT_EQ(num_files(), files_before);
    if (is_accepted_with_warning(expected, result)) continue;
    EXPECT_EQ(result.exit_code, expected.at("exit").get<int>())
        << command.front() << ": " << expected.at("why") << "\n"
        << result.err;
    if (expected.at("exit") == 0) continue;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    for (const Json& text : expected.at("must_mention")) {
      EXPECT_THAT(result.err, HasSubstr(text.get<std::string>()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadCheckpoint, ::testing::ValuesIn(case_names()),
                         [](const ::testing::TestParamInfo<std::string>& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moe::test
