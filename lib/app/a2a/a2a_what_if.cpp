// moe-a2a what-if: what another network or schedule would change.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

struct WhatIfArgs {
  ClusterArgs cluster;
  std::int64_t ranks = 64;
  std::int64_t bytes = std::int64_t{64} << 20;
  double compute_s = 0.0;
  OutputOptions output;
};

struct Variant {
  std::string name;
  ClusterArgs args;
};

ClusterArgs with(ClusterArgs args, const std::function<void(ClusterArgs&)>& change) {
  change(args);
  return args;
}

// One change at a time, from the cluster as given.
std::vector<Variant> variants_of(const ClusterArgs& base, std::int64_t nics) {
  std::vector<Variant> variants = {{"as given", base}};
  for (const std::int64_t count : {nics / 2, nics * 2}) {
    if (count > 0) {
      variants.push_back({fmt::format("{} NICs a node instead of {}", count, nics),
                          with(base, [&](ClusterArgs& args) { args.nics = count; })});
    }
  }
  for (const char* fabric : {"flat", "rail", "rail-only"}) {
    if (base.fabric == fabric) continue;
    variants.push_back({fmt::format("{} network", fabric),
                        with(base, [&](ClusterArgs& args) { args.fabric = fabric; })});
  }
  // PXN only matters where there are rails.
  for (const char* fabric : {"rail", "rail-only"}) {
    variants.push_back(
        {fmt::format("{} network {} PXN", fabric, base.has_no_pxn ? "with" : "without"),
         with(base, [&](ClusterArgs& args) {
           args.fabric = fabric;
           args.has_no_pxn = !base.has_no_pxn;
         })});
  }
  for (const double factor : {1.0, 2.0, 4.0}) {
    if (factor == base.oversubscription) continue;
    variants.push_back({fmt::format("spine oversubscribed {}:1", factor),
                        with(base, [&](ClusterArgs& args) { args.oversubscription = factor; })});
  }
  const bool is_flat = base.schedule == "flat";
  variants.push_back(
      {is_flat ? "two-level all-to-all" : "flat all-to-all",
       with(base, [&](ClusterArgs& args) { args.schedule = is_flat ? "two-level" : "flat"; })});
  return variants;
}

void add_chunk_rows(const topology::A2aModel& model, const topology::A2aInput& input,
                    const WhatIfArgs& args, report::Report& report) {
  report::Table table = make_table("Chunks overlapped with compute",
                                   {{"chunks", "1"}, {"total_s", "s"}, {"bubble_share", "1"}});
  const double bytes = static_cast<double>(args.bytes);
  for (const std::int64_t chunks : {1, 2, 4, 8, 16, 32}) {
    const topology::Overlap overlap =
        topology::overlap_chunks(model, input, bytes, args.compute_s, chunks);
    table.rows.push_back({count_cell(chunks), overlap.total_s, overlap.bubble_share});
  }
  report.tables["chunks"] = std::move(table);
}

int run_what_if(const WhatIfArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const topology::LinkCatalog catalog = load_catalog(args.cluster.scenarios);
  const topology::MeasuredLaws laws = load_laws(args.cluster.scenarios);
  const topology::A2aModel model(catalog, laws);
  ClusterFacts base = resolve_cluster(args.cluster, catalog);
  base.input.cluster.num_ranks = args.ranks;
  const double bytes = static_cast<double>(args.bytes);
  report::Report& report = session.report();
  report.subject =
      json::Json{{"kind", "topology"},
                 {"name", args.cluster.topology.empty() ? base.input.gpu : args.cluster.topology},
                 {"content_hash", nullptr}};
  report.settings["command"] = "what-if";
  report.settings.update(cluster_settings(base));
  report.settings["ranks"] = args.ranks;
  report.settings["bytes"] = args.bytes;
  const topology::A2aTime given = model.predict(base.input, bytes);
  report::Table table = make_table(
      fmt::format("One change at a time: {} ranks, {} bytes a rank", args.ranks, args.bytes),
      {{"change", ""},
       {"time_s", "s"},
       {"busbw_bytes_per_s", "bytes/s"},
       {"ceiling_bytes_per_s", "bytes/s"},
       {"time_over_given", "1"},
       {"note", ""}});
  for (const Variant& variant : variants_of(args.cluster, base.num_nics)) {
    ClusterFacts facts = resolve_cluster(variant.args, catalog);
    facts.input.cluster.num_ranks = args.ranks;
    const topology::Ceiling ceiling = topology::a2a_ceiling(facts.input.cluster);
    const bool is_reachable =
        ceiling.is_reachable || facts.input.schedule == topology::Schedule::kTwoLevel;
    if (!is_reachable || ceiling.busbw_bytes_per_s <= 0.0) {
      table.rows.push_back({variant.name, report::Cell(), report::Cell(), report::Cell(),
                            report::Cell(), std::string("no way between rails")});
      continue;
    }
    const topology::A2aTime time = model.predict(facts.input, bytes);
    table.rows.push_back({variant.name, time.time_s, time.busbw_bytes_per_s,
                          ceiling.busbw_bytes_per_s, time.time_s / given.time_s, ceiling.limit});
  }
  report.tables["what_if"] = std::move(table);
  report.metrics["a2a_time_s"] = value_metric(report::MetricKind::kModelled, "s", given.time_s,
                                              "predicted time of the cluster as given");
  report.highlights = {"a2a_time_s"};
  if (args.compute_s > 0.0) add_chunk_rows(model, base.input, args, report);
  if (topology::remote_share(base.input.cluster) == 0.0) {
    session.add_finding("what_if.one_domain", report::Severity::kInfo,
                        "all ranks are in one NVLink domain: no network is used and no change of "
                        "it matters",
                        "Raise --ranks or lower --domain");
  }
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_what_if_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<WhatIfArgs>();
  Options& options =
      line.add_command("what-if", "Predicts what another network or schedule would change",
                       [args, &context] { return run_what_if(*args, context); });
  add_cluster_options(options, args->cluster);
  options.group("What to predict");
  options.integer("--ranks", args->ranks, IntRange{2, 1000000}, "Number of ranks");
  options.bytes("--bytes", args->bytes, "Bytes that one rank sends in all", "64MiB");
  options.duration("--compute", args->compute_s, "Compute to overlap with it; 0 leaves it out",
                   "0");
  add_output_options(options, args->output);
  options.example("moe-a2a what-if --gpu h100_sxm --ranks 64 --bytes 256MiB", "8 nodes");
}

}  // namespace moe::app
