// Results of other benchmarks from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/topology/results.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    moe::topology::ResultOptions options;
    options.num_ranks = 4;
    (void)moe::topology::find_dips(moe::topology::read_results(text, "fuzz", options), 0.15);
  } catch (const moe::Error&) {
  }
  return 0;
}
