#include "lib/app/plan/fit_report.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include <fmt/format.h>

namespace moe::app {
namespace {

using model::Part;
using planner::ByteBand;
using planner::RankFit;
using report::MetricKind;

constexpr double kGib = 1073741824.0;
constexpr std::array<Part, model::kNumParts> kParts = {
    Part::kEmbedding,     Part::kAttention, Part::kRouter, Part::kRoutedExperts,
    Part::kSharedExperts, Part::kDense,     Part::kNorm,   Part::kHead};

void set(report::Report& report, const std::string& name, const char* unit, double value,
         const std::string& how, MetricKind kind = MetricKind::kModelled) {
  report.metrics[name] = value_metric(kind, unit, value, how);
}

std::string kind_of(const model::LayerSpec& layer) {
  std::string text(layer.is_encoder ? "encoder, " : "");
  text += model::mixer_name(layer.mixer.kind);
  if (layer.mixer.window > 0 && layer.mixer.kind == model::MixerKind::kGqa) {
    text += fmt::format(" (window {})", layer.mixer.window);
  }
  if (layer.mixer.chunk > 0) text += fmt::format(" (chunk {})", layer.mixer.chunk);
  if (layer.mixer.compress_ratio > 0) text += fmt::format(" (1 of {})", layer.mixer.compress_ratio);
  switch (layer.ffn.kind) {
    case model::FfnKind::kMoe:
      text += fmt::format(", {} experts top {} of width {}", layer.ffn.num_experts, layer.ffn.top_k,
                          layer.ffn.expert_width);
      if (layer.ffn.shared_width > 0) text += fmt::format(" + shared {}", layer.ffn.shared_width);
      if (layer.ffn.dense_width > 0) text += fmt::format(" + dense {}", layer.ffn.dense_width);
      break;
    case model::FfnKind::kDense:
      text += fmt::format(", dense {}", layer.ffn.dense_width);
      break;
    case model::FfnKind::kNone:
      break;
  }
  return text;
}

void add_layer_table(const model::Architecture& architecture, report::Report& report) {
  report::Table table = make_table("Kinds of layers", {{"kind", ""}, {"layers", "1"}});
  std::vector<std::pair<std::string, std::int64_t>> kinds;
  for (const model::LayerSpec& layer : architecture.layers) {
    const std::string kind = kind_of(layer);
    const auto found = std::ranges::find(kinds, kind, &std::pair<std::string, std::int64_t>::first);
    if (found == kinds.end()) {
      kinds.emplace_back(kind, 1);
    } else {
      ++found->second;
    }
  }
  for (const auto& [kind, count] : kinds) table.rows.push_back({kind, count_cell(count)});
  report.tables["layer_kinds"] = table;
}

void add_format_table(const model::Architecture& architecture, report::Report& report) {
  report::Table table = make_table(
      "Stored as", {{"format", ""}, {"parameters", "1"}, {"bytes", "bytes"}, {"bits_each", "1"}});
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> formats;
  for (const model::WeightGroup& group : architecture.weights) {
    const std::string name =
        group.fixed_bits > 0 ? fmt::format("{} bit", group.fixed_bits) : group.format.name;
    auto& [elements, bytes] = formats[name];
    elements += group.elements();
    bytes += group.bytes();
  }
  for (const auto& [name, counts] : formats) {
    table.rows.push_back({name, count_cell(counts.first), count_cell(counts.second),
                          8.0 * static_cast<double>(counts.second) /
                              static_cast<double>(std::max<std::int64_t>(1, counts.first))});
  }
  report.tables["weight_formats"] = table;
}

// One line of the memory table; the band is equal to the value where there is none.
struct MemoryRow {
  std::string part;
  ByteBand bytes;
  std::string kind;
};

ByteBand exact(std::int64_t bytes, std::string how) {
  return {bytes, bytes, bytes, true, std::move(how)};
}

std::vector<MemoryRow> memory_rows(const RankFit& rank, const planner::FitOptions& options) {
  std::vector<MemoryRow> rows;
  for (const Part part : kParts) {
    const std::int64_t bytes = rank.weights.by_part[static_cast<std::size_t>(part)];
    if (bytes == 0) continue;
    rows.push_back({fmt::format("weights: {}", model::part_name(part)),
                    exact(bytes, "shapes of the config, split by the layout"), "modelled"});
  }
  if (rank.weights.mtp > 0) {
    rows.push_back(
        {"weights: multi-token prediction", exact(rank.weights.mtp, "with --mtp"), "modelled"});
  }
  const auto overhead = [&](std::string name, const ByteBand& band) {
    rows.push_back({std::move(name), band, band.is_given ? "given" : "assumed"});
  };
  overhead("activation peak", rank.overhead.activation);
  overhead("CUDA graphs", rank.overhead.graphs);
  overhead("communication buffers", rank.overhead.communication);
  overhead("context", rank.overhead.context);
  rows.push_back({"fragmentation",
                  exact(rank.fragmentation_bytes,
                        fmt::format("{} of the budget", rank.overhead.fragmentation_ratio)),
                  "assumed"});
  rows.push_back(
      {"cache pool", exact(rank.kv_pool_bytes, "what remains of the budget"), "modelled"});
  const std::int64_t memory = options.memory_bytes;
  rows.push_back({"left outside of the budget",
                  exact(std::max<std::int64_t>(0, memory - rank.used_bytes - rank.kv_pool_bytes),
                        fmt::format("memory x (1 - {})", options.utilization)),
                  "modelled"});
  return rows;
}

void add_stacked(const planner::FitResult& result, report::Report& report) {
  report::Table table =
      make_table("Memory of the fullest rank by stage", {{"stage", "1"},
                                                         {"experts", "bytes"},
                                                         {"other_weights", "bytes"},
                                                         {"overhead", "bytes"},
                                                         {"cache", "bytes"}});
  for (const RankFit& rank : result.stages) {
    const auto experts = rank.weights.by_part[static_cast<std::size_t>(Part::kRoutedExperts)];
    const std::int64_t overhead = rank.used_bytes - rank.weights.worst_rank;
    table.rows.push_back({count_cell(rank.weights.stage), count_cell(experts),
                          count_cell(rank.weights.worst_rank - experts), count_cell(overhead),
                          count_cell(rank.kv_pool_bytes)});
  }
  report.tables["memory_by_stage"] = table;
  report.charts.push_back({.title = "Memory of the fullest rank by stage",
                           .kind = report::ChartKind::kStacked,
                           .table = "memory_by_stage",
                           .x = "stage",
                           .y = {"experts", "other_weights", "overhead", "cache"},
                           .group_by = ""});
}

void add_cache_metrics(const planner::FitOptions& options, const planner::FitResult& result,
                       report::Report& report) {
  const RankFit& rank = result.binding();
  set(report, "kv_bytes_per_token", "bytes", rank.kv.uniform(),
      "all caches of one more token on one rank of the binding stage, before blocks");
  set(report, "kv_growing_bytes_per_token", "bytes", rank.kv.growing,
      "of layers that see the whole sequence");
  set(report, "state_bytes_per_request", "bytes", static_cast<double>(rank.kv.state),
      "recurrent state of one sequence on that rank");
  set(report, "request_bytes", "bytes", static_cast<double>(rank.request_bytes),
      fmt::format("one request of {} tokens on that rank, rounded to blocks",
                  options.request_tokens));
  set(report, "kv_pool_bytes", "bytes", static_cast<double>(rank.kv_pool_bytes),
      "cache of that rank");
  set(report, "max_requests", "1", static_cast<double>(result.max_requests),
      "requests of this length at once, all data-parallel replicas together");
  set(report, "max_requests_low", "1", static_cast<double>(result.max_requests_worst),
      "the same with every overhead at the high end of its band");
  set(report, "max_requests_high", "1", static_cast<double>(result.max_requests_best),
      "the same with every overhead at the low end of its band");
}

}  // namespace

void add_parameter_tables(const model::Architecture& architecture, report::Report& report) {
  const model::ParameterSummary counts = model::count_parameters(architecture);
  const auto metric = [&](const char* name, std::int64_t value, const char* how) {
    set(report, name, "1", static_cast<double>(value), how);
  };
  metric("parameters_total", counts.total, "elements of all weights; tied ones once");
  metric("parameters_active", counts.active_with_embeddings,
         "elements one token meets: everything but the routed experts it is not sent to");
  metric("parameters_active_without_input_embedding", counts.active_without_input_embedding,
         "the same without the input embedding");
  metric("parameters_active_without_embeddings", counts.active_without_embeddings,
         "the same without embedding and head");
  if (counts.mtp > 0) {
    metric("parameters_mtp", counts.mtp, "multi-token-prediction module, not in the total");
  }
  set(report, "weight_bytes", "bytes", static_cast<double>(architecture.weight_bytes()),
      "weights as stored: codes, scales and zero points");
  report::Table parts =
      make_table("Parts", {{"part", ""}, {"parameters", "1"}, {"bytes", "bytes"}});
  for (const Part part : kParts) {
    if (counts.of(part) == 0) continue;
    std::int64_t bytes = 0;
    for (const model::WeightGroup& group : architecture.weights) {
      if (group.part == part) bytes += group.bytes();
    }
    parts.rows.push_back(
        {std::string(model::part_name(part)), count_cell(counts.of(part)), count_cell(bytes)});
  }
  report.tables["parts"] = parts;
  add_layer_table(architecture, report);
  add_format_table(architecture, report);
}

void add_memory_tables(const planner::Layout& layout, const planner::FitOptions& options,
                       const planner::FitResult& result, report::Report& report) {
  report::Table table =
      make_table("Memory of the fullest rank, binding stage first", {{"stage", "1"},
                                                                     {"part", ""},
                                                                     {"bytes", "bytes"},
                                                                     {"low", "bytes"},
                                                                     {"high", "bytes"},
                                                                     {"kind", ""},
                                                                     {"how", ""}});
  std::vector<std::size_t> order = {result.binding_stage};
  for (std::size_t at = 0; at < result.stages.size(); ++at) {
    if (at != result.binding_stage) order.push_back(at);
  }
  for (const std::size_t at : order) {
    const RankFit& rank = result.stages[at];
    for (const MemoryRow& row : memory_rows(rank, options)) {
      table.rows.push_back({count_cell(rank.weights.stage), row.part, count_cell(row.bytes.value),
                            count_cell(row.bytes.low), count_cell(row.bytes.high), row.kind,
                            row.bytes.how});
    }
  }
  report.tables["memory"] = table;
  add_stacked(result, report);
  const RankFit& rank = result.binding();
  set(report, "fits", "1", result.fits ? 1.0 : 0.0,
      "1: weights, overhead and at least one request fit on every rank");
  set(report, "weight_bytes_per_rank", "bytes", static_cast<double>(rank.weights.worst_rank),
      "fullest rank of the binding stage");
  set(report, "weight_bytes_per_rank_mean", "bytes", rank.weights.mean_rank,
      "mean over the ranks of that stage");
  set(report, "weight_bytes_all_ranks", "bytes", static_cast<double>(result.weight_bytes_total),
      "over all GPUs, copies included");
  set(report, "binding_stage", "1", static_cast<double>(result.binding_stage),
      "pipeline stage that decides");
  set(report, "memory_use_ratio", "1",
      static_cast<double>(rank.used_bytes + rank.kv_pool_bytes) /
          static_cast<double>(options.memory_bytes),
      "weights, overhead and cache pool over the memory of a GPU, binding stage");
  set(report, "out_of_memory_count", "1",
      static_cast<double>(std::ranges::count_if(
          result.stages, [](const RankFit& stage) { return stage.missing_bytes > 0; })),
      "pipeline stages whose weights and overhead exceed what they may use");
  set(report, "num_ranks", "1", layout.gpus(), "GPUs of the deployment");
  add_cache_metrics(options, result, report);
  report.highlights = {"fits",          "max_requests",       "weight_bytes_per_rank",
                       "kv_pool_bytes", "kv_bytes_per_token", "request_bytes"};
}

void add_fit_findings(const FitFindings& fit, ReportSession& session) {
  const RankFit& rank = fit.result.binding();
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / kGib; };
  if (!fit.result.weights_fit) {
    session.add_finding(
        "fit.too_large", report::Severity::kError,
        fmt::format("stage {} needs {:.2f} GiB more than the {:.2f} GiB it may use: weights {:.2f} "
                    "GiB and everything else {:.2f} GiB",
                    rank.weights.stage, gib(rank.missing_bytes), gib(rank.budget_bytes),
                    gib(rank.weights.worst_rank), gib(rank.used_bytes - rank.weights.worst_rank)),
        "More GPUs (--layout), a GPU with more memory, or narrower weights (--weights)");
  } else if (!fit.result.fits) {
    session.add_finding(
        "fit.no_request", report::Severity::kError,
        fmt::format("weights fit, but one request of {} tokens needs {:.2f} GiB of the {:.2f} GiB "
                    "that remain",
                    fit.options.request_tokens, gib(rank.request_bytes), gib(rank.kv_pool_bytes)),
        "Shorter requests, --kv-dtype fp8, or more GPUs");
  } else if (fit.result.max_requests_worst == 0) {
    session.add_finding("fit.tight", report::Severity::kWarning,
                        "it fits only while the overheads stay below the high end of their bands",
                        "Measure them on one GPU and give them (--activation, --graphs, ...)");
  }
  if (!fit.is_memory_given && !fit.gpu.has_visible_memory()) {
    session.add_finding("fit.memory_assumed", report::Severity::kWarning,
                        fmt::format("what a {} shows was not read from one: {:.2f} GiB are assumed "
                                    "from its label",
                                    fit.gpu.name, gib(fit.options.memory_bytes)),
                        "Give it: --memory 80GiB");
  }
  const std::string& cache = fit.architecture.quant.kv_cache_dtype;
  if (!cache.empty() && fit.options.kv.dtype.bits > 8.5) {
    session.add_finding(
        "fit.kv_dtype", report::Severity::kInfo,
        fmt::format("the checkpoint asks for a cache in {}; 16 bits are counted", cache),
        "Add --kv-dtype fp8 when the engine follows it");
  }
  const std::int64_t longest = fit.architecture.max_position_embeddings;
  if (longest > 0 && fit.options.request_tokens > longest) {
    session.add_finding("fit.too_long", report::Severity::kWarning,
                        fmt::format("a request of {} tokens is longer than the model's {}",
                                    fit.options.request_tokens, longest),
                        "Engines refuse it unless told otherwise");
  }
  for (const std::string& note : fit.architecture.notes) {
    session.add_finding("fit.model", report::Severity::kInfo, note, "");
  }
}

}  // namespace moe::app
