// A report from arbitrary bytes: refused with an Error, or read and then written in every format.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/report/checklist.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::report;  // NOLINT(google-build-using-namespace): one function
  try {
    const Report report = parse_report({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string text = write_json(report);
    // What was read is written to the same bytes again.
    MOE_CHECK(write_json(parse_report(text, "again")) == text);
    for (const std::string& name : format_names())
      MOE_CHECK(!write(report, *parse_format(name)).empty());
    (void)evaluate(report, default_checklist());
    (void)mask_volatile(to_json(report));
  } catch (const moe::Error&) {
  }
  return 0;
}
