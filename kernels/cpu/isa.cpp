#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/api.hpp"
#include "kernels/cpu/levels.hpp"

namespace moe::kernels {
namespace {

constexpr std::array<const char*, kNumIsas> kNames = {"scalar", "avx2", "avx512", "avx512_bf16"};

#if defined(__x86_64__)

struct CpuidLeaf {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

CpuidLeaf cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  CpuidLeaf out;  // stays zero when the processor has no such leaf
  __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);
  return out;
}

bool has_bits(std::uint64_t word, std::uint64_t bits) {
  return (word & bits) == bits;
}

constexpr std::uint64_t bit(unsigned idx) {
  return std::uint64_t{1} << idx;
}

// The register state that the operating system saves on a context switch. Only valid when cpuid
// reports OSXSAVE. Inline assembly because the intrinsic needs a compiler flag of its own.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32U) | low;
}

// Bit numbers: Intel SDM volume 2A, CPUID leaves 1 and 7; volume 1 section 13.3 (XCR0).
Isa detect_isa() {
  const CpuidLeaf basic = cpuid(1, 0);
  constexpr std::uint64_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
  constexpr std::uint64_t kYmmState = bit(1) | bit(2);
  constexpr std::uint64_t kZmmState = kYmmState | bit(5) | bit(6) | bit(7);
  if (!has_bits(basic.ecx, kFma | kOsxsave | kAvx | kF16c)) {
    return Isa::kScalar;
  }
  const std::uint64_t xcr0 = read_xcr0();
  const CpuidLeaf extended = cpuid(7, 0);
  if (!has_bits(xcr0, kYmmState) || !has_bits(extended.ebx, bit(5))) {
    return Isa::kScalar;
  }
  constexpr std::uint64_t kAvx512FDqBwVl = bit(16) | bit(17) | bit(30) | bit(31);
  if (!has_bits(xcr0, kZmmState) || !has_bits(extended.ebx, kAvx512FDqBwVl)) {
    return Isa::kAvx2;
  }
  return has_bits(cpuid(7, 1).eax, bit(5)) ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

#else

Isa detect_isa() {
  return Isa::kScalar;
}

#endif

// Levels are nested: a machine that runs one runs all lower ones.
Isa highest_isa() {
  static const Isa isa = detect_isa();
  return isa;
}

}  // namespace

bool isa_supported(Isa isa) noexcept {
  return isa <= highest_isa();
}

Isa best_supported_isa() noexcept {
  auto isa = highest_isa();
  while (level_table(isa) == nullptr) {
    isa = static_cast<Isa>(static_cast<int>(isa) - 1);
  }
  return isa;
}

const KernelTable* kernel_table(Isa isa) noexcept {
  return isa_supported(isa) ? level_table(isa) : nullptr;
}

const char* isa_name(Isa isa) noexcept {
  return kNames[static_cast<std::size_t>(isa)];
}

bool parse_isa(const char* name, Isa* isa) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (std::strcmp(name, kNames[i]) == 0) {
      *isa = static_cast<Isa>(i);
      return true;
    }
  }
  return false;
}

}  // namespace moe::kernels
