#include "tests/kernels/levels.hpp"

#include <cstdlib>

#include "tests/kernels/emulated.hpp"

namespace moe::kernels {

void PrintTo(const Level& level, std::ostream* out) {
  *out << level.name;
}

std::vector<Level> levels_under_test() {
  std::vector<Level> levels;
  const char* forced = std::getenv("MOE_CPU_ISA");
  for (int i = 0; i < kNumIsas; ++i) {
    const Isa isa = static_cast<Isa>(i);
    const KernelTable* table = kernel_table(isa);
    if (table != nullptr && (forced == nullptr || std::string(forced) == isa_name(isa))) {
      levels.push_back({isa_name(isa), table});
    }
  }
  if (forced == nullptr) {
    levels.push_back({"emulated_avx512", &emulated_avx512_table()});
    levels.push_back({"emulated_avx512_bf16", &emulated_avx512_bf16_table()});
    levels.push_back({"emulated_amx", &emulated_amx_table()});
  }
  return levels;
}

std::string level_test_name(const testing::TestParamInfo<Level>& info) {
  return info.param.name;
}

}  // namespace moe::kernels
