#include "lib/planner/hardware.hpp"

#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/planner/byte_support.hpp"

namespace moe::planner {
namespace {

HardwareFile project_hardware() {
  const auto file = kScenarios / "hardware.json";
  return parse_hardware(test::read_file(file), file.string());
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_hardware(text, "own.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Hardware, TheProjectsFileIsReadInBaseUnits) {
  const HardwareFile file = project_hardware();
  EXPECT_GE(file.accelerators.size(), 24U);
  const Accelerator& h100 = find_accelerator(file, "h100-sxm");
  EXPECT_DOUBLE_EQ(h100.memory_bytes_per_s, 3350e9);
  EXPECT_DOUBLE_EQ(*h100.bf16_flops_per_s, 989e12);    // dense, not the sparse 1,979
  EXPECT_DOUBLE_EQ(h100.scale_up_bytes_per_s, 450e9);  // one direction
  EXPECT_EQ(h100.usable_memory_bytes(), std::int64_t{81080} << 20);
  for (const Accelerator& gpu : file.accelerators) {
    SCOPED_TRACE(gpu.id);
    EXPECT_FALSE(gpu.sources.empty());
    // Never more than the label in GiB.
    EXPECT_LE(static_cast<double>(gpu.usable_memory_bytes()),
              gpu.memory_gb_marketed * 1073741824.0);
    EXPECT_GT(static_cast<double>(gpu.usable_memory_bytes()), gpu.memory_gb_marketed * 0.85e9);
  }
}

TEST(Hardware, NamesAreFoundByAUniquePart) {
  const HardwareFile file = project_hardware();
  EXPECT_EQ(find_accelerator(file, "L40S").id, "l40s");
  EXPECT_EQ(find_accelerator(file, "mi300").id, "mi300x");
  EXPECT_THROW((void)find_accelerator(file, "h100"), Error);  // SXM, PCIe and NVL
  EXPECT_THROW((void)find_accelerator(file, "abacus"), Error);
  EXPECT_THROW((void)find_accelerator(file, ""), Error);
}

TEST(Hardware, OwnEntriesReplaceAndJoin) {
  HardwareFile file = project_hardware();
  const std::size_t before = file.accelerators.size();
  merge_hardware(file, parse_hardware(R"({"accelerators": [
    {"id": "h100-sxm", "name": "mine", "memory_gb_marketed": 80, "memory_visible_mib": 80000,
     "memory_bandwidth_gbs": 3000, "dense_tflops": {"bf16": 900},
     "scale_up": {"type": "NVLink", "domain_gpus": 4}},
    {"id": "new-1", "name": "new", "memory_gb_marketed": 64, "memory_bandwidth_gbs": 1000,
     "dense_tflops": {}, "scale_up": {}}]})",
                                      "own.json"));
  EXPECT_EQ(file.accelerators.size(), before + 1);
  EXPECT_EQ(find_accelerator(file, "h100-sxm").usable_memory_bytes(), std::int64_t{80000} << 20);
  EXPECT_FALSE(find_accelerator(file, "new-1").bf16_flops_per_s.has_value());
}

TEST(Hardware, WrongEntriesAreNamed) {
  EXPECT_NE(refusal("[]").find("accelerators"), std::string::npos);
  EXPECT_NE(refusal(R"({"accelerators": [{}]})").find("accelerator 0: id"), std::string::npos);
  EXPECT_NE(refusal(R"({"accelerators": [{"id": "a", "name": "A", "memory_gb_marketed": 0,
              "memory_bandwidth_gbs": 1, "dense_tflops": {}, "scale_up": {}}]})")
                .find("\"a\": memory_gb_marketed"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"accelerators": [{"id": "a", "name": "A", "memory_gb_marketed": 8,
              "memory_bandwidth_gbs": "fast"}]})")
                .find("memory_bandwidth_gbs"),
            std::string::npos);
}

}  // namespace
}  // namespace moe::planner
