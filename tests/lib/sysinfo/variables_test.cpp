#include "lib/sysinfo/variables.hpp"

#include <gtest/gtest.h>

namespace moe::sysinfo {
namespace {

TEST(ReportableVariables, KeepsTheAllowListOnly) {
  const char* const environment[] = {
      "HOME=/root", "NCCL_DEBUG=INFO",       "OMP_NUM_THREADS=4",
      "MOE_X=a=b",  "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES_OLD=1",
      "PATH=/bin",  "no equals sign",        "=NCCL_",
      nullptr};
  EXPECT_EQ(reportable_variables(environment),
            (std::map<std::string, std::string>{{"NCCL_DEBUG", "INFO"},
                                                {"OMP_NUM_THREADS", "4"},
                                                {"MOE_X", "a=b"},
                                                {"CUDA_VISIBLE_DEVICES", ""}}));
}

TEST(ReportableVariables, DropsWhatLooksLikeASecret) {
  for (const char* name : {"MOE_API_TOKEN", "MOE_apikey", "NCCL_SECRET_X", "MOE_DB_PASSWORD",
                           "OMP_AUTH", "MOE_CREDENTIALS"}) {
    EXPECT_FALSE(is_reportable_variable(name)) << name;
  }
  EXPECT_TRUE(is_reportable_variable("NCCL_IB_HCA"));
  EXPECT_TRUE(is_reportable_variable("UCX_TLS"));
}

TEST(ReportableVariables, OfNoEnvironmentAreNone) {
  EXPECT_TRUE(reportable_variables(nullptr).empty());
}

}  // namespace
}  // namespace moe::sysinfo
