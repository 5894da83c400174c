#pragma once

// A machine as documentation and as infrastructure code: Markdown, a drawing, Kubernetes node
// labels, Slurm topology.conf and gres.conf, Ansible and Terraform variables. Texts of files are
// escaped for the format they go into.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

struct DocumentOptions {
  std::string node_name = "gpu-node-1";  // of the first node
  std::int64_t num_nodes = 1;            // alike
  std::string leaf_switch = "leaf-1";    // that the nodes hang on
};

[[nodiscard]] std::string to_markdown(const Topology& topology, const std::vector<Remark>& remarks,
                                      const DocumentOptions& options);
// Self-contained SVG: CPUs, switches, GPUs and NICs in rows, one line for each link.
[[nodiscard]] std::string to_svg(const Topology& topology);

// Labels of a Node object, to be applied with kubectl apply.
[[nodiscard]] std::string to_kubernetes(const Topology& topology, const DocumentOptions& options);
[[nodiscard]] std::string to_slurm_topology(const Topology& topology,
                                            const DocumentOptions& options);
[[nodiscard]] std::string to_slurm_gres(const Topology& topology, const DocumentOptions& options);
[[nodiscard]] std::string to_ansible(const Topology& topology, const DocumentOptions& options);
[[nodiscard]] std::string to_terraform(const Topology& topology, const DocumentOptions& options);

// "8 GPUs, 8 NICs, 2 CPUs, 18 NVLinks a GPU".
[[nodiscard]] std::string summary_line(const Topology& topology);

// "gpu-node-[1-4]" for Slurm, one name each for the others.
[[nodiscard]] std::string slurm_node_range(const DocumentOptions& options);
[[nodiscard]] std::vector<std::string> node_names(const DocumentOptions& options);

}  // namespace moe::topology
