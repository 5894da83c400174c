// Any routing input from arbitrary bytes: refused with an Error, or read to its end and checked,
// nothing else. Built once for each family of files, each with a corpus of its own.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/sanity.hpp"
#include "lib/routing/windows.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Readers map a file; one per process, rewritten for every input.
  static const std::string file = (std::filesystem::temp_directory_path() /
                                   ("fuzz_routing_input." + std::to_string(::getpid())))
                                      .string();
  {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  moe::routing::OpenOptions options;
  options.top_k = 2;
  options.skip_profiling = true;
  try {
    moe::routing::RoutingInput input = moe::routing::open_input(file, options);
    (void)moe::routing::check_input(input);
    (void)moe::routing::count_windows(input);
  } catch (const moe::Error&) {
  }
  std::filesystem::remove(file);
  return 0;
}
