// Constants of the time model from arbitrary bytes: refused with an Error or read and used, nothing
// else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/topology/time_laws.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::topology::Json document = moe::json::parse(text, "fuzz");
    const moe::topology::MeasuredLaws laws = moe::topology::laws_from_json(document, "fuzz");
    for (const moe::topology::CollectiveSeries& series : laws.collectives) {
      (void)series.time_s(1e6);
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
