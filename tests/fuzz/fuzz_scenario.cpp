// A scenario file from arbitrary JSON: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/app/plan/scenario.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    moe::json::Json document = moe::json::parse(text, "fuzz");
    // No file is opened here.
    if (document.is_object() && document.contains("workload") && document["workload"].is_object()) {
      document["workload"].erase("trace");
    }
    const moe::app::Scenario scenario = moe::app::parse_scenario(document, "fuzz", "/nonexistent");
    (void)moe::app::list_assumptions(scenario);
  } catch (const moe::Error&) {
  }
  return 0;
}
