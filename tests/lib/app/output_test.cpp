#include "lib/app/output.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::app {
namespace {

using ::testing::HasSubstr;

std::vector<OutputTarget> resolve(const std::string& format, std::vector<std::string> outputs) {
  OutputOptions output;
  output.format = format;
  output.outputs = std::move(outputs);
  return resolve_outputs(output);
}

std::string message_of(const std::string& format, std::vector<std::string> outputs) {
  try {
    (void)resolve(format, std::move(outputs));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(ResolveOutputs, PutsTheFormatOnStdout) {
  const auto targets = resolve("json", {});
  ASSERT_EQ(targets.size(), 1U);
  EXPECT_EQ(targets[0].path, "-");
  EXPECT_EQ(targets[0].format, report::Format::kJson);
  EXPECT_TRUE(resolve("none", {}).empty());
}

TEST(ResolveOutputs, TakesTheFormatOfTheEndingOrThePrefix) {
  const test::TempDir dir;
  const auto path = [&](const char* name) { return (dir / name).string(); };
  const auto targets = resolve("text", {path("a.json"), "html:" + path("b"), path("c.prom")});
  ASSERT_EQ(targets.size(), 4U);
  EXPECT_EQ(targets[0].format, report::Format::kJson);
  EXPECT_EQ(targets[1].format, report::Format::kHtml);
  EXPECT_EQ(targets[1].path, path("b"));
  EXPECT_EQ(targets[2].format, report::Format::kPrometheus);
  EXPECT_EQ(targets[3].path, "-");
}

TEST(ResolveOutputs, APlaceForStdoutReplacesTheDefault) {
  const auto targets = resolve("text", {"json:-"});
  ASSERT_EQ(targets.size(), 1U);
  EXPECT_EQ(targets[0].format, report::Format::kJson);
}

TEST(ResolveOutputs, WritesFilesBeforeStdout) {
  const test::TempDir dir;
  const auto targets = resolve("text", {"-", (dir / "a.json").string()});
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[1].path, "-");
}

TEST(ResolveOutputs, RefusesWhatCannotBeWritten) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "folder.json");
  EXPECT_THAT(message_of("text", {"report"}), HasSubstr("FORMAT:FILE"));
  EXPECT_THAT(message_of("text", {"json:"}), HasSubstr("json:"));
  EXPECT_THAT(message_of("text", {"-", "json:-"}), HasSubstr("stdout"));
  EXPECT_THAT(message_of("text", {(dir / "missing" / "a.json").string()}),
              HasSubstr("no directory"));
  EXPECT_THAT(message_of("text", {(dir / "folder.json").string()}), HasSubstr("directory"));
}

}  // namespace
}  // namespace moe::app
