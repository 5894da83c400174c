#include <array>
#include <cstring>

#include "kernels/cpu/isa_detect.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/api.hpp"
#include "kernels/cpu/levels.hpp"

namespace moe::kernels {
namespace {

constexpr std::array<const char*, kNumIsas> kNames = {"scalar", "avx2", "avx512", "avx512_bf16",
                                                      "amx"};

bool has_bits(std::uint64_t word, std::uint64_t bits) {
  return (word & bits) == bits;
}

constexpr std::uint64_t bit(unsigned idx) {
  return std::uint64_t{1} << idx;
}

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

constexpr std::uint64_t kOsxsave = bit(27);

// The register state that the operating system saves on a context switch. Only valid when cpuid
// reports OSXSAVE. Inline assembly because the intrinsic needs a compiler flag of its own.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32U) | low;
}

CpuFacts read_facts() {
  CpuFacts facts;
  facts.leaf1_ecx = cpuid(1, 0).ecx;
  const CpuidLeaf extended = cpuid(7, 0);
  facts.leaf7_ebx = extended.ebx;
  facts.leaf7_ecx = extended.ecx;
  facts.leaf7_edx = extended.edx;
  facts.leaf7_1_eax = cpuid(7, 1).eax;
  facts.leaf1d_eax = cpuid(0x1d, 0).eax;
  if (has_bits(facts.leaf1_ecx, kOsxsave)) facts.xcr0 = read_xcr0();
  return facts;
}

#else

CpuFacts read_facts() {
  return {};
}

#endif

// Linux gives a process the tile registers only on request (Documentation/arch/x86/xstate.rst);
// without it the first tile instruction is an illegal one. Threads that exist already and children
// have the permission too. It makes signal frames larger: a program that sets alternate signal
// stacks must ask the system for their size.
bool request_tile_registers() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // bit of XCR0
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Levels are nested: a machine that runs one runs all lower ones.
const IsaDetection& detection() {
  static const IsaDetection result = detect_isa(read_facts(), request_tile_registers);
  return result;
}

Isa highest_isa() {
  return detection().highest;
}

}  // namespace

// Bit numbers: Intel SDM volume 2A, CPUID leaves 1, 7 and 1DH; volume 1 section 13.3 (XCR0).
IsaDetection detect_isa(const CpuFacts& facts, bool (*request_tiles)()) noexcept {
  constexpr std::uint64_t kFmaOsxsaveAvxF16c = bit(12) | bit(27) | bit(28) | bit(29);
  constexpr std::uint64_t kYmmState = bit(1) | bit(2);
  constexpr std::uint64_t kZmmState = kYmmState | bit(5) | bit(6) | bit(7);
  constexpr std::uint64_t kTileState = bit(17) | bit(18);
  if (!has_bits(facts.leaf1_ecx, kFmaOsxsaveAvxF16c) || !has_bits(facts.xcr0, kYmmState) ||
      !has_bits(facts.leaf7_ebx, bit(5))) {
    return {Isa::kScalar};
  }
  constexpr std::uint64_t kAvx512FDqBwVl = bit(16) | bit(17) | bit(30) | bit(31);
  if (!has_bits(facts.xcr0, kZmmState) || !has_bits(facts.leaf7_ebx, kAvx512FDqBwVl)) {
    return {Isa::kAvx2};
  }
  const bool has_vnni = has_bits(facts.leaf7_ecx, bit(11));
  if (!has_vnni || !has_bits(facts.leaf7_1_eax, bit(5))) {
    return {.highest = Isa::kAvx512, .has_vnni = has_vnni};
  }
  constexpr std::uint64_t kAmxBf16TileInt8 = bit(22) | bit(24) | bit(25);
  if (!has_bits(facts.leaf7_edx, kAmxBf16TileInt8)) {
    return {.highest = Isa::kAvx512Bf16, .has_vnni = true};
  }
  if (!has_bits(facts.xcr0, kTileState)) {
    return {Isa::kAvx512Bf16, "the operating system does not keep the tile registers (XCR0)", true};
  }
  // Hypervisors exist that show the feature bit and no palette.
  if (facts.leaf1d_eax < 1) {
    return {Isa::kAvx512Bf16, "the processor offers no tile palette (cpuid leaf 0x1d)", true};
  }
  if (!request_tiles()) {
    return {Isa::kAvx512Bf16,
            "the operating system refused the tile registers to this process (arch_prctl)", true};
  }
  return {.highest = Isa::kAmx, .has_vnni = true};
}

const char* isa_refusal(Isa isa) noexcept {
  return isa == Isa::kAmx ? detection().amx_refusal : nullptr;
}

bool isa_supported(Isa isa) noexcept {
  return isa <= highest_isa();
}

bool vnni_supported() noexcept {
  return detection().has_vnni;
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
