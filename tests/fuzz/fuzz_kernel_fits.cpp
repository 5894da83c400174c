// Fits of expert kernels from arbitrary text: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/balance/kernel_model.hpp"
#include "lib/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)moe::balance::read_kernel_fits({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const moe::Error&) {
  }
  return 0;
}
