#pragma once

// The levels that a test runs on: every level of this machine (one, when MOE_CPU_ISA names it) and
// the emulated AVX-512 and AMX levels.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/api.hpp"

namespace moe::kernels {

struct Level {
  std::string name;
  const KernelTable* table;
};

// Test names end in the level's.
void PrintTo(const Level& level, std::ostream* out);

[[nodiscard]] std::vector<Level> levels_under_test();

[[nodiscard]] std::string level_test_name(const testing::TestParamInfo<Level>& info);

class LevelTest : public testing::TestWithParam<Level> {
 protected:
  [[nodiscard]] static const KernelTable& table() { return *GetParam().table; }
};

}  // namespace moe::kernels
