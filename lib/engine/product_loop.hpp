#pragma once

// A kernel's product on operands that stay in the first two cache levels, one copy a thread: what
// the peaks of machine_limits and the choice of a level are measured with.

#include <cstdint>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"

namespace moe::engine {

struct PeakCase {
  kernels::Isa isa = kernels::Isa::kScalar;
  kernels::WeightFormat weights = kernels::WeightFormat::kF32;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;

  [[nodiscard]] bool operator==(const PeakCase&) const = default;
};

// Codes with scales: fp8, mxfp4, int8, int4.
[[nodiscard]] bool has_scales(kernels::WeightFormat format);

// Whether the level multiplies these two with each other.
[[nodiscard]] bool can_multiply(const PeakCase& of);

class ProductLoop {
 public:
  static constexpr std::int32_t kMaxTokens = 48;

  // The level must be there and multiply the formats.
  ProductLoop(const PeakCase& of, std::int32_t num_threads);

  // Multiply and add count as two.
  [[nodiscard]] static double flops(std::int32_t num_tokens);
  // One product; thread_idx in [0, num_threads), num_tokens in [1, kMaxTokens].
  void run(std::int32_t thread_idx, std::int32_t num_tokens);

 private:
  struct Operands {
    AlignedBytes weights;
    AlignedBuffer<float> x;  // large enough for the shorter formats, too
    AlignedBuffer<float> x_scales;
    AlignedBuffer<std::int32_t> x_sums;
    AlignedBuffer<float> y;
  };

  PeakCase case_;
  const kernels::KernelTable* table_ = nullptr;
  std::vector<Operands> operands_;
};

}  // namespace moe::engine
