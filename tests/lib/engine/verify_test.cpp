// Every golden checkpoint of scenarios/ against every kernel level of this machine.

#include "lib/engine/verify.hpp"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using testing::checkpoint_dir;
using testing::runnable_isas;

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_dir(""))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string describe(const TensorComparison& comparison) {
  return fmt::format("{}: {} at [{}, {}]: expected {}, found {} ({} of {} wrong, largest error {})",
                     comparison.phase, comparison.name, comparison.first_wrong_row,
                     comparison.first_wrong_col, comparison.expected, comparison.found,
                     comparison.num_wrong, comparison.num_values, comparison.max_error);
}

class GoldenCheckpoint : public ::testing::TestWithParam<std::tuple<std::string, kernels::Isa>> {};

TEST_P(GoldenCheckpoint, GivesTheRecordedNumbers) {
  const auto& [name, isa] = GetParam();
  VerifyOptions options;
  options.isa = isa;
  options.num_threads = 2;
  NullProgress progress;
  const Interrupt interrupt;
  const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
  const VerifyResult result =
      verify(model, checkpoint_dir(name) / "golden.safetensors", options, progress, interrupt);
  EXPECT_TRUE(result.passed);
  EXPECT_THAT(result.not_compared, ::testing::IsEmpty());
  EXPECT_GE(result.comparisons.size(), 2U);
  if (result.first_difference) {
    ADD_FAILURE() << describe(result.comparisons[*result.first_difference]);
  }
  double worst = 0.0;
  for (const TensorComparison& comparison : result.comparisons) {
    worst = std::max(worst, comparison.max_error_ratio);
  }
  RecordProperty("worst_error_ratio", fmt::format("{:.3f}", worst));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCheckpoint,
                         ::testing::Combine(::testing::ValuesIn(golden_cases()),
                                            ::testing::ValuesIn(runnable_isas())),
                         [](const auto& param_info) {
                           std::string name = std::get<0>(param_info.param) + "_" +
                                              kernels::isa_name(std::get<1>(param_info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moe::engine
