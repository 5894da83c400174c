// A checklist from arbitrary bytes: refused with an Error, or evaluated against a report.

#include <cstddef>
#include <cstdint>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/report/checklist.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::report;  // NOLINT(google-build-using-namespace): one function
  try {
    const Checklist checklist =
        parse_checklist({reinterpret_cast<const char*>(data), size}, "fuzz");
    Report report;
    report.tool = {{"name", "moe-bench"}};
    Metric metric;
    metric.unit = "1";
    metric.value = 1.0;
    for (const char* name : {"num_ranks", "model_experts_count", "spec_speedup_ratio", "a"}) {
      report.metrics[name] = metric;
    }
    const Acceptance acceptance = evaluate(report, checklist);
    MOE_CHECK(acceptance.items.size() <= checklist.items.size());
    (void)evaluate_together(std::vector<Report>{report, report}, {"a", "b"}, checklist);
    (void)gate_failures(acceptance, {true, {"a"}});
  } catch (const moe::Error&) {
  }
  return 0;
}
