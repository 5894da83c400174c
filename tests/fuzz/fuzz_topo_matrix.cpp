// Output of nvidia-smi topo -m from arbitrary bytes: refused with an Error or read, checked, drawn
// and compared, nothing else.

#include "lib/topology/topo_matrix.hpp"
#include "tests/fuzz/use_topology.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return moe::test::read_and_use_topology(data, size, moe::topology::read_topo_matrix);
}
