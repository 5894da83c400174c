#pragma once

// Which level a machine can run, from what its processor and operating system say. Apart from the
// instructions that ask them, so that a test can answer for a machine that is not at hand.

#include <cstdint>

#include "kernels/api.hpp"

namespace moe::kernels {

// cpuid registers (Intel SDM volume 2A) and XCR0; zero when the processor lacks the leaf.
struct CpuFacts {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint32_t leaf1d_eax = 0;  // highest tile palette
  std::uint64_t xcr0 = 0;        // only read when leaf 1 reports OSXSAVE
};

struct IsaDetection {
  Isa highest = Isa::kScalar;
  const char* amx_refusal = nullptr;  // as isa_refusal(Isa::kAmx)
  bool has_vnni = false;              // AVX-512 VNNI
};

// `request_tiles` asks the operating system for the tile registers; called only when everything
// else is there.
[[nodiscard]] IsaDetection detect_isa(const CpuFacts& facts, bool (*request_tiles)()) noexcept;

}  // namespace moe::kernels
