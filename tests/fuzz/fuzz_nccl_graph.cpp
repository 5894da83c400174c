// Graph XML of NCCL from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/topology/nccl_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    (void)moe::topology::read_nccl_graph(text, "fuzz");
  } catch (const moe::Error&) {
  }
  return 0;
}
