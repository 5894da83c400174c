// moe-a2a run --backend nccl through the real binary, on machines without a GPU.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

class A2aNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "this machine has a GPU";
  }
};

TEST_F(A2aNccl, EndsWithFourAndTheReasonWithoutADriver) {
  const std::string error = a2a_error({"run", "--backend", "nccl"}, 4);
  EXPECT_THAT(error, HasSubstr("--backend nccl: "));
  EXPECT_THAT(error,
              ::testing::AnyOf(HasSubstr("no GPU can be used"), HasSubstr("cannot be loaded"),
                               HasSubstr("no GPU to this"), HasSubstr("not in this build")));
}

TEST_F(A2aNccl, EndsWithFourUnderALauncherToo) {
  ProcessOptions options;
  options.environment = {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=localhost",
                         "MASTER_PORT=1"};
  const ProcessResult result = run_moe_a2a({"run", "--backend", "nccl"}, options);
  EXPECT_EQ(result.exit_code, 4) << result.err;
}

TEST_F(A2aNccl, IsListedWithTheReason) {
  const ProcessResult result = run_moe_a2a({"--list-backends"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("nccl"));
}

}  // namespace
}  // namespace moe::test
