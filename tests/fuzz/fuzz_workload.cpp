// A workload description from arbitrary JSON: refused with an Error or read; what was read can be
// sampled.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/workload/workload.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    moe::json::Json document = moe::json::parse(text, "fuzz");
    if (document.is_object()) document.erase("trace");  // no file is opened here
    const moe::workload::Workload workload =
        moe::workload::parse_workload(document, "fuzz", "/nonexistent");
    moe::Rng rng(1);
    (void)workload.input_tokens.sample(rng);
    (void)workload.output_tokens.quantile(0.99);
    if (workload.arrivals) {
      moe::workload::ArrivalGenerator generator(*workload.arrivals, workload.process, 1);
      for (int i = 0; i < 100; ++i) (void)generator.next_s();
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
