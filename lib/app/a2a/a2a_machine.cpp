#include "lib/app/a2a/a2a_machine.hpp"

#include <nlohmann/json.hpp>

#include "lib/topology/a2a_model.hpp"

namespace moe::app {

GateContext machine_context(const ClusterArgs& args, std::int64_t num_ranks,
                            ReportSession& session) {
  GateContext context;
  const bool has_machine = !args.gpu.empty() || !args.topology.empty();
  if (!has_machine || num_ranks < 2) return context;
  const topology::LinkCatalog catalog = load_catalog(args.scenarios);
  const topology::MeasuredLaws laws = load_laws(args.scenarios);
  ClusterFacts facts = resolve_cluster(args, catalog);
  facts.input.cluster.num_ranks = num_ranks;
  const topology::A2aModel model(catalog, laws);
  context.ceiling_bytes_per_s = topology::a2a_ceiling(facts.input.cluster).busbw_bytes_per_s;
  const double half = model.half_bandwidth_bytes(facts.input);
  if (half > 0.0) context.half_bandwidth_bytes = half;
  context.cluster = facts.input.cluster;
  session.report().settings.update(cluster_settings(facts));
  for (report::Finding& finding : gpu_findings(facts.input.gpu, *context.ceiling_bytes_per_s)) {
    session.report().findings.push_back(std::move(finding));
  }
  return context;
}

}  // namespace moe::app
