// A recorded trace from arbitrary bytes, in the format its beginning shows and in each format by
// name: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/workload/trace.hpp"
#include "lib/workload/trace_profile.hpp"

namespace {

void read(std::string_view text, const moe::workload::TraceOptions& options) {
  moe::workload::TraceProfiler profiler;
  try {
    const moe::workload::TraceInfo info = moe::workload::visit_trace_text(
        text, "fuzz", options,
        [&](const moe::workload::Request& request) { profiler.add(request); });
    (void)profiler.finish(info);
  } catch (const moe::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(text, {});
  for (const std::string& name : moe::workload::trace_format_names()) {
    moe::workload::TraceOptions options;
    options.format = moe::workload::parse_trace_format(name);
    read(text, options);
  }
  return 0;
}
