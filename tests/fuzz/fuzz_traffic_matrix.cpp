// Traffic matrices from arbitrary bytes: refused with an Error, or scaled so that no part is
// negative and no rank sends more than was asked.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/comm/pattern.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const moe::comm::TrafficShares shares = moe::comm::parse_traffic(text, "fuzz");
    constexpr std::int64_t kBytes = 1 << 20;
    const int num_ranks = static_cast<int>(shares.num_ranks);
    const moe::comm::TrafficMatrix matrix = moe::comm::scale_traffic(shares, num_ranks, kBytes);
    for (const std::int64_t bytes : matrix.bytes) {
      if (bytes < 0) std::abort();
    }
    // Rounding of the sum of doubles is all that may come on top.
    if (matrix.max_sent() > kBytes + 16) std::abort();
  } catch (const moe::Error&) {
  }
  return 0;
}
