// A report of another client from arbitrary JSON: refused with an Error or read; what was read is
// finite and never negative.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/client_reports/client_report.hpp"
#include "lib/json/read.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::json::Json document = moe::json::parse(text, "fuzz");
    for (moe::client_reports::ClientReport& report :
         moe::client_reports::parse_client_reports(document, "fuzz")) {
      for (const auto& [name, latency] : report.latencies) {
        for (const double sample_s : latency.samples_s) {
          if (!std::isfinite(sample_s)) std::abort();
        }
      }
      const auto records = document.find("records");
      if (records == document.end() || !records->is_array()) continue;
      moe::client_reports::add_records({records->begin(), records->end()}, "fuzz", report);
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
