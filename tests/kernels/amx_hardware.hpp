#pragma once

// The tile layer of the hardware, called from tests. Only where isa_supported(Isa::kAmx).

#include <array>
#include <cstddef>
#include <cstdint>

namespace moe::kernels {

// Configures with a configuration built on the stack, as kernels do, and returns the bytes of what
// the processor says it has. Nothing stays configured.
[[nodiscard]] std::array<std::byte, 64> hardware_config(int num_rows);

// sums += rows * weights on one tile of num_rows rows of 32 elements.
void hardware_product(int num_rows, const std::uint16_t* rows, const std::uint16_t* weights,
                      float* sums);

// The same of int8: rows of 64 elements, integer sums.
void hardware_int8_product(int num_rows, const std::int8_t* rows, const std::int8_t* weights,
                           std::int32_t* sums);

}  // namespace moe::kernels
