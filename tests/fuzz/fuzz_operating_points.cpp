// Tables of measured deployments from arbitrary bytes: refused with an Error or read and split,
// nothing else.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/planner/end_to_end.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::planner;
  try {
    const OperatingPoints table =
        parse_operating_points({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const OperatingPoint& point : table.points) {
      MOE_CHECK(std::isfinite(point.ttft_s) && std::isfinite(point.tpot_s));
      (void)is_held_out(point, Split::kPoints);
      (void)is_held_out(point, Split::kDeployments);
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
