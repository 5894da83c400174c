// Measured points as CSV from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/topology/measured_points.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (moe::topology::is_moe_csv(text)) {
      (void)moe::topology::parse_moe_points(text, "fuzz");
    } else {
      (void)moe::topology::parse_collective_points(text, "fuzz");
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
