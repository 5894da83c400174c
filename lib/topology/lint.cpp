#include "lib/topology/lint.hpp"

#include <fmt/format.h>

#include "lib/topology/lint_rules.hpp"
#include "lib/topology/nccl_xml.hpp"

namespace moe::topology {

const std::vector<LintRule>& lint_rules() {
  static const std::vector<LintRule> rules = {
      {"nvlink.self", "an NVLink whose target is the GPU itself",
       "Azure azhpc-images ncv4-topo.xml"},
      {"nvlink.missing", "a GPU without NVLink while its peers have it",
       "a GB300 tray: 507 GB/s became 52 without an error"},
      {"nvlink.fewer", "a GPU with fewer NVLinks than its peers", "NVIDIA/nccl#1182"},
      {"link.speed_unknown", "a link_speed that NCCL takes for Gen3", "Azure azhpc-images ncv4"},
      {"link.slow", "a GPU or NIC behind a slower PCIe link than its peers", "NVIDIA/nccl#749"},
      {"link.choke", "a switch whose uplink is slower than what hangs off it", "OCI H100"},
      {"nic.link_slower_than_net", "a NIC behind a slower PCIe link than its network",
       "DGX Spark, x4 links"},
      {"nic.no_gdr", "a network port without GPUDirect RDMA", "Azure azhpc-images ncv4"},
      {"nic.shared_while_idle", "GPUs share a nearest NIC while another idles", "NVIDIA/nccl#820"},
      {"nic.reversed", "NICs in the reverse order of the GPUs", "NVIDIA/nccl-tests#321"},
      {"cpu.overlap", "two CPUs whose affinity masks share CPUs", "hand-written files"},
      {"cpu.order", "NUMA nodes whose CPU numbers run backwards",
       "two published NDv5 files with exchanged masks"},
      {"cpu.amd_family", "the kernel's family number of an AMD CPU where NCCL's own is expected",
       "Azure azhpc-images ndv4"},
      {"cpu.differs_from_host", "an affinity mask that the host does not have",
       "two published NDv5 files with exchanged masks"},
      {"gpu.differs_from_host", "bus ids that the host does not have",
       "files copied between machines"},
      {"topology.flat", "no PCIe structure at all, as in a VM without a topology file",
       "NVIDIA/nccl-tests#256: 475 GB/s became 27"},
      {"nccl.nodes", "more elements than NCCL takes", "aws/aws-ofi-nccl PR 1226"},
      {"nccl.tab", "a tab between attributes", "hand-written files"},
      {"nccl.prolog", "an XML declaration", "files written by XML tools"},
      {"nccl.attributes", "more attributes than NCCL keeps", "hand-written files"},
      {"nccl.children", "more children than NCCL takes", "merged files"},
      {"nccl.string", "a longer text than NCCL keeps", "hand-written files"},
      {"xml.version", "a version that does not belong to the library", "RCCL files given to NCCL"},
      {"p2p.unavailable", "GPUs without direct access to each other", "RTX 5090 pair, GNS"},
      {"matrix.asymmetric", "a path that differs by direction", "edited output"},
      {"matrix.rows_missing", "a matrix that was cut", "vllm-project/vllm#24513"},
      {"topology.nodes_differ", "nodes of one job that are not alike", "NVIDIA/nccl#856"},
  };
  return rules;
}

void lint_file(const Topology& topology, std::vector<Remark>& remarks) {
  const bool is_nccl = topology.format == Format::kNcclTopology;
  const bool is_rccl = topology.format == Format::kRcclTopology;
  if (!is_nccl && !is_rccl) return;
  const std::string expected = is_nccl ? "1" : "2";
  const std::string found = topology.version.value_or("");
  if (found != expected) {
    remarks.push_back(
        {"xml.version",
         Weight::kError,
         fmt::format("system version \"{}\", but {} takes {} and refuses the file", found,
                     is_nccl ? "NCCL" : "RCCL", expected),
         is_nccl ? "NCCL's files have version=\"1\"" : "RCCL's files have version=\"2\"",
         {},
         0});
  }
  if (topology.num_elements > kNcclMaxElements) {
    remarks.push_back({"nccl.nodes",
                       Weight::kError,
                       fmt::format("{} elements; NCCL takes {} for a file or a fused domain",
                                   topology.num_elements, kNcclMaxElements),
                       "Leave out what NCCL can detect itself",
                       {},
                       0});
  }
}

std::vector<Remark> lint(const Topology& topology, const LinkCatalog& /*catalog*/,
                         const Topology* host) {
  std::vector<Remark> remarks = topology.remarks;
  lint_file(topology, remarks);
  lint_fabric(topology, remarks);
  lint_pcie(topology, remarks);
  lint_nics(topology, remarks);
  lint_cpus(topology, remarks);
  if (host != nullptr) lint_against_host(topology, *host, remarks);
  return remarks;
}

}  // namespace moe::topology
