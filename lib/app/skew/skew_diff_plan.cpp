// moe-skew diff-plan: what changes between two plans, and what loading the difference costs.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/plan_text.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"

namespace moe::app {
namespace {

using balance::Placement;
using report::MetricKind;

struct DiffArgs {
  std::string before;
  std::string after;
  std::int64_t num_gpus = 0;
  std::int64_t expert_bytes = 0;
  double link_bytes_per_s = 0.0;
  OutputOptions output;
};

balance::Plan read_plan_file(const std::string& path, std::int64_t num_gpus) {
  const FileMap file(path);
  const auto bytes = file.bytes();
  return balance::read_plan({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path,
                            {.num_gpus = static_cast<std::int32_t>(num_gpus)});
}

void require_same_shape(const DiffArgs& args, const balance::Plan& before,
                        const balance::Plan& after) {
  const Placement& a = before.placement;
  const Placement& b = after.placement;
  if (a.slot_begin == b.slot_begin && a.num_experts == b.num_experts &&
      before.layers == after.layers) {
    return;
  }
  throw Error(
      ErrorCode::kInput,
      fmt::format("{}: {} layers, {} experts, {} slots on {} GPUs; {}: {}, {}, {} on {}, or "
                  "other layer numbers: only plans of one shape can be compared",
                  args.before, a.num_layers, a.num_experts, a.num_slots(), a.num_gpus(), args.after,
                  b.num_layers, b.num_experts, b.num_slots(), b.num_gpus()));
}

void add_tables(const balance::Plan& before, const balance::Plan& after, report::Report& report) {
  const Placement& a = before.placement;
  const Placement& b = after.placement;
  report::Table layers =
      make_table("Changed layers",
                 {{"layer", "1"}, {"moved_slots", "1"}, {"experts_with_other_replicas", "1"}});
  layers.is_detail = b.num_layers > 40;
  report::Table gpus = make_table("Slots to load, by GPU", {{"gpu", "1"}, {"moved_slots", "1"}});
  gpus.is_detail = b.num_gpus() > 40;
  std::vector<std::int64_t> by_gpu(static_cast<std::size_t>(b.num_gpus()), 0);
  for (std::int32_t layer = 0; layer < b.num_layers; ++layer) {
    std::int64_t moved = 0;
    for (std::int32_t gpu = 0; gpu < b.num_gpus(); ++gpu) {
      const std::int64_t of_gpu = balance::moved_slots_of_gpu(a, b, layer, gpu);
      by_gpu[static_cast<std::size_t>(gpu)] += of_gpu;
      moved += of_gpu;
    }
    const std::vector<std::int32_t> replicas_before = balance::replica_counts(a, layer);
    const std::vector<std::int32_t> replicas_after = balance::replica_counts(b, layer);
    std::int64_t changed = 0;
    for (std::size_t expert = 0; expert < replicas_after.size(); ++expert) {
      if (replicas_before[expert] != replicas_after[expert]) ++changed;
    }
    if (moved == 0 && changed == 0) continue;
    layers.rows.push_back({count_cell(after.layers[static_cast<std::size_t>(layer)]),
                           count_cell(moved), count_cell(changed)});
  }
  for (std::size_t gpu = 0; gpu < by_gpu.size(); ++gpu) {
    gpus.rows.push_back({count_cell(static_cast<std::int64_t>(gpu)), count_cell(by_gpu[gpu])});
  }
  report.tables["layers"] = layers;
  report.tables["gpus"] = gpus;
  const std::int64_t most = *std::max_element(by_gpu.begin(), by_gpu.end());
  report.metrics["placement_moved_slots_busiest_gpu_count"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(most),
                   "slots that the GPU with most to load has to load");
}

void add_metrics(const DiffArgs& args, const Placement& before, const Placement& after,
                 report::Report& report) {
  const std::int64_t moved = balance::moved_slots(before, after);
  const auto add = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
  };
  add("placement_moved_slots_count", "1", static_cast<double>(moved),
      "slots whose expert was not on the same GPU before");
  add("placement_moved_slots_ratio", "1",
      static_cast<double>(moved) / static_cast<double>(after.slot_expert.size()),
      "the same over all slots of all layers");
  add("placement_colocated_replicas_count", "1",
      static_cast<double>(balance::colocated_replicas(after)),
      "slots of the new plan that hold an expert which its GPU holds already");
  report.highlights = {"placement_moved_slots_count", "placement_moved_slots_ratio"};
  if (args.expert_bytes == 0) return;
  const double bytes = static_cast<double>(args.expert_bytes);
  add("placement_moved_bytes", "bytes", static_cast<double>(moved) * bytes,
      "moved slots x --expert-bytes");
  report.highlights.push_back("placement_moved_bytes");
  if (args.link_bytes_per_s <= 0.0) return;
  const double most = *report.metrics.at("placement_moved_slots_busiest_gpu_count").value;
  add("migration_s", "s", most * bytes / args.link_bytes_per_s,
      "all GPUs load at once, each at --link-bytes-per-s: the one with most to load decides");
  report.highlights.push_back("migration_s");
}

int run_diff(const DiffArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const balance::Plan before = read_plan_file(args.before, args.num_gpus);
  const balance::Plan after = read_plan_file(args.after, args.num_gpus);
  require_same_shape(args, before, after);
  report::Report& report = session.report();
  report.subject["kind"] = "reports";
  report.subject["name"] = args.before + " -> " + args.after;
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "diff-plan";
  report.settings["before"] = args.before;
  report.settings["after"] = args.after;
  report.settings["gpus"] = after.placement.num_gpus();
  report.settings["expert_bytes"] = args.expert_bytes;
  report.settings["link_bytes_per_s"] = args.link_bytes_per_s;
  add_tables(before, after, report);
  add_metrics(args, before.placement, after.placement, report);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_diff_plan_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<DiffArgs>();
  Options& options = line.add_command("diff-plan", "Compares two plans: moved slots, bytes, time",
                                      [args, &context] { return run_diff(*args, context); });
  options.positional("BEFORE", args->before, "The plan in force");
  options.positional("AFTER", args->after, "The plan to come");
  options.group("Plans");
  options.integer("--gpus", args->num_gpus, {0, 1 << 16},
                  "GPUs, where a plan's format does not tell them", "from the plan");
  options.bytes("--expert-bytes", args->expert_bytes, "Weights of one expert of one layer",
                "not known");
  options.real("--link-bytes-per-s", args->link_bytes_per_s, {},
               "Rate at which a GPU loads experts");
  add_output_options(options, args->output);
}

}  // namespace moe::app
