// Reading, checking and predicting: what a CI job waits for.

#include <string>

#include <benchmark/benchmark.h>

#include "lib/topology/a2a_model.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/lint.hpp"
#include "lib/topology/read_topology.hpp"

namespace moe::topology {
namespace {

std::string path_of(const std::string& name) {
  return std::string(MOE_SOURCE_DIR) + "/scenarios/" + name;
}

const LinkCatalog& catalog() {
  static const LinkCatalog kCatalog = read_link_catalog(path_of("topologies/link_catalog.json"));
  return kCatalog;
}

Topology oci_h100() {
  return read_topology(path_of("topologies/oci-h100-16nic.nccl-topo.xml"), catalog(), {});
}

void read_and_lint(benchmark::State& state) {
  for (auto _ : state) {
    const Topology topology = oci_h100();
    benchmark::DoNotOptimize(lint(topology, catalog()));
  }
}
BENCHMARK(read_and_lint)->Unit(benchmark::kMicrosecond);

void diff_with_itself(benchmark::State& state) {
  const Topology topology = oci_h100();
  for (auto _ : state) benchmark::DoNotOptimize(diff_topologies(topology, topology));
}
BENCHMARK(diff_with_itself)->Unit(benchmark::kMicrosecond);

void ceiling_by_flows(benchmark::State& state) {
  const Topology topology =
      read_topology(path_of("topologies/dgx1-v100-cube-mesh.topo-m.txt"), catalog(), {});
  for (auto _ : state) benchmark::DoNotOptimize(machine_ceiling(topology));
}
BENCHMARK(ceiling_by_flows)->Unit(benchmark::kMicrosecond);

void predict_one_size(benchmark::State& state) {
  const MeasuredLaws laws = read_laws(path_of("measured/collectives_fits.json"));
  const A2aModel model(catalog(), laws);
  A2aInput input;
  input.gpu = "h100_sxm";
  input.cluster.num_ranks = state.range(0);
  input.cluster.intra_bytes_per_s = 370.8e9;
  input.cluster.nic_bytes_per_s = 48.5e9;
  for (auto _ : state) benchmark::DoNotOptimize(model.predict(input, 1e8));
}
BENCHMARK(predict_one_size)->Arg(8)->Arg(512)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace moe::topology
