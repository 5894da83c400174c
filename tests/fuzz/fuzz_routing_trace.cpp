// A routing trace from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/routing/trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // read_trace maps a file; one per process, rewritten for every input.
  static const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("fuzz_routing_trace." + std::to_string(::getpid()));
  {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  try {
    const moe::routing::Trace trace = moe::routing::read_trace(file);
    (void)trace.expert_counts(moe::routing::Phase::kPrefill);
  } catch (const moe::Error&) {
  }
  std::filesystem::remove(file);
  return 0;
}
