// Output of nvidia-smi topo -p2p from arbitrary bytes: refused with an Error or read, nothing else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/topology/topo_matrix.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    moe::topology::Topology topology;
    moe::topology::add_p2p_remarks(topology, moe::topology::read_p2p_matrix(text, "fuzz"));
  } catch (const moe::Error&) {
  }
  return 0;
}
