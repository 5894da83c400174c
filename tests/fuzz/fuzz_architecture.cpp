// A config.json from arbitrary bytes, read for planning: refused with an Error of one line, or an
// architecture whose parameters, bytes and caches can be counted and add up.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/model/architecture.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::model;
  try {
    const Architecture architecture =
        parse_architecture(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    MOE_CHECK(!architecture.layers.empty() && !architecture.weights.empty());
    const ParameterSummary counts = count_parameters(architecture);
    MOE_CHECK(counts.total > 0 && counts.active_with_embeddings > 0);
    MOE_CHECK(counts.active_with_embeddings <= counts.total);
    std::int64_t sum = 0;
    for (const std::int64_t part : counts.by_part) sum += part;
    MOE_CHECK(sum == counts.total);
    MOE_CHECK(architecture.weight_bytes() > 0);
    MOE_CHECK(architecture.mtp_bytes() >= 0);
  } catch (const moe::Error& error) {
    MOE_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
