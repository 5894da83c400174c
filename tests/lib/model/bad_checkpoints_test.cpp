// Broken checkpoints are refused with one line that names what is at fault, and the controls load.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/bound_model.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

const fs::path kBad = fs::path(MOE_SOURCE_DIR) / "tests/data/bad-checkpoints";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kBad)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class BadCheckpoint : public ::testing::TestWithParam<std::string> {};

TEST_P(BadCheckpoint, IsRefusedByName) {
  const auto expected = nlohmann::json::parse(test::read_file(kBad / GetParam() / "expected.json"));
  std::optional<std::string> message;
  try {
    (void)bind_checkpoint(kBad / GetParam());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput) << error.what();
    message = error.what();
  }
  if (expected.at("exit") == 0) {
    EXPECT_FALSE(message.has_value()) << *message;
    return;
  }
  if (expected.contains("when")) return;  // a fault of the tokenizer, which is not bound here
  ASSERT_TRUE(message.has_value()) << "accepted: " << expected.at("why");
  EXPECT_THAT(*message, ::testing::Not(::testing::HasSubstr("\n")));
  EXPECT_EQ(first_invalid_utf8(*message), message->size());
  // Names must come from what was read, not from the path of the case.
  std::string without_path = *message;
  const std::string directory = (kBad / GetParam()).string();
  for (std::size_t at; (at = without_path.find(directory)) != std::string::npos;) {
    without_path.erase(at, directory.size());
  }
  for (const std::string mention : expected.at("must_mention")) {
    EXPECT_THAT(without_path, ::testing::HasSubstr(mention));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadCheckpoint, ::testing::ValuesIn(case_names()),
                         [](const ::testing::TestParamInfo<std::string>& param) {
                           std::string name = param.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace moe::model
