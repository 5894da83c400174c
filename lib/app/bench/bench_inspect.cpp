// moe-bench inspect: what a checkpoint holds, from its headers alone.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/tensor_files.hpp"

namespace moe::app {
namespace {

using model::Part;

struct InspectArgs {
  std::string checkpoint;
  std::string scenarios;
  std::string check_values = "auto";
  OutputOptions output;
};

constexpr std::int64_t kAutoCheckBytes = std::int64_t{2} << 30;
constexpr std::array<Part, model::kNumParts> kParts = {
    Part::kEmbedding,     Part::kAttention, Part::kRouter, Part::kRoutedExperts,
    Part::kSharedExperts, Part::kDense,     Part::kNorm,   Part::kHead};

void add_metrics(const model::BoundModel& bound, const model::ParameterCounts& parameters,
                 const model::ByteCounts& bytes, report::Report& report) {
  // Counted, not timed: the same for every run and machine.
  const auto counted = [&](const char* name, const char* unit, std::int64_t value,
                           const char* how) {
    report.metrics[name] =
        value_metric(report::MetricKind::kModelled, unit, static_cast<double>(value), how);
  };
  counted("parameters_total", "1", parameters.total, "elements of all weights; tied ones once");
  counted("parameters_active", "1", parameters.active_with_embeddings,
          "elements that one token meets: everything but the routed experts, of which top_k / "
          "num_experts");
  counted("parameters_active_without_input_embedding", "1",
          parameters.active_without_input_embedding,
          "the same without the input embedding, which is looked up and not multiplied");
  counted("parameters_active_without_embeddings", "1", parameters.active_without_embeddings,
          "the same without embedding and head");
  counted("weight_bytes", "bytes", bytes.total, "bytes of these weights in the files");
  counted("weight_file_bytes", "bytes", bound.file_bytes,
          "size of all weight files, headers and ignored tensors included");
  if (bound.config.is_moe()) {
    counted("expert_bytes", "bytes", bytes.one_expert,
            "bytes of one routed expert of the first MoE layer");
  }
}

void add_parts_table(const model::ParameterCounts& parameters, const model::ByteCounts& bytes,
                     report::Report& report) {
  report::Table parts = make_table(
      "Parts", {{"part", ""}, {"parameters", "1"}, {"bytes", "bytes"}, {"share_of_bytes", "1"}});
  for (const Part part : kParts) {
    if (parameters.of(part) == 0) continue;
    const double share =
        bytes.total > 0 ? static_cast<double>(bytes.of(part)) / static_cast<double>(bytes.total)
                        : 0.0;
    parts.rows.push_back({std::string(model::part_name(part)), count_cell(parameters.of(part)),
                          count_cell(bytes.of(part)), share});
  }
  report.tables["parts"] = parts;
  report::Table dtypes = make_table("Stored as", {{"dtype", ""}, {"bytes", "bytes"}});
  for (const auto& [name, size] : bytes.by_dtype) dtypes.rows.push_back({name, count_cell(size)});
  report.tables["dtypes"] = dtypes;
}

// "0-2" for a run of equal layers: most models have two kinds at most.
void add_layers_table(const model::ModelConfig& config, const model::ParameterCounts& parameters,
                      const model::ByteCounts& bytes, report::Report& report) {
  report::Table layers = make_table("Layers", {{"layers", ""},
                                               {"kind", ""},
                                               {"window_tokens", "1"},
                                               {"parameters_each", "1"},
                                               {"active_parameters_each", "1"},
                                               {"bytes_each", "bytes"}});
  std::size_t begin = 0;
  const auto same = [&](std::size_t a, std::size_t b) {
    return config.layers[a].is_moe == config.layers[b].is_moe &&
           config.layers[a].window == config.layers[b].window &&
           parameters.layers[a].total == parameters.layers[b].total &&
           bytes.layers[a] == bytes.layers[b];
  };
  while (begin < config.layers.size()) {
    std::size_t end = begin + 1;
    while (end < config.layers.size() && same(begin, end)) ++end;
    const model::LayerConfig& layer = config.layers[begin];
    layers.rows.push_back(
        {end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1),
         std::string(layer.is_moe ? "MoE" : "dense"),
         layer.window > 0 ? count_cell(layer.window) : report::Cell(),
         count_cell(parameters.layers[begin].total), count_cell(parameters.layers[begin].active),
         count_cell(bytes.layers[begin])});
    begin = end;
  }
  report.tables["layers"] = layers;
}

void add_findings(const model::BoundModel& bound, ReportSession& session) {
  const std::vector<std::string>& ignored = bound.ignored_tensors;
  if (!ignored.empty()) {
    report::Table table = make_table("Ignored tensors", {{"tensor", ""}});
    table.is_detail = true;
    for (const std::string& tensor : ignored) table.rows.push_back({tensor});
    session.report().tables["ignored_tensors"] = table;
    session.add_finding("checkpoint.ignored_tensors", report::Severity::kInfo,
                        fmt::format("{} tensors are ignored by a rule, the first is {}",
                                    ignored.size(), ignored.front()),
                        "");
  }
  for (const std::vector<std::string>* warnings : {&bound.config.warnings, &bound.warnings}) {
    for (const std::string& warning : *warnings) {
      session.add_finding("checkpoint.warning", report::Severity::kWarning, warning, "");
    }
  }
}

// Values are looked at where that costs little, so that a broken small checkpoint does not pass.
model::BoundModel bind(const std::filesystem::path& directory, const std::string& check_values) {
  model::BindOptions options;
  options.scan_values = check_values == "yes";
  model::BoundModel bound = model::bind_checkpoint(directory, options);
  if (check_values == "auto" && bound.file_bytes <= kAutoCheckBytes) {
    options.scan_values = true;
    bound = model::bind_checkpoint(directory, options);
  }
  return bound;
}

int run_inspect(const InspectArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::filesystem::path directory = find_checkpoint(args.checkpoint, args.scenarios);
  const model::BoundModel bound = bind(directory, args.check_values);
  const model::ParameterCounts parameters = model::count_parameters(bound);
  const model::ByteCounts bytes = model::count_bytes(bound);

  report::Report& report = session.report();
  report.subject = describe_checkpoint(directory, bound);
  report.settings["command"] = "inspect";
  report.settings["check_values"] = args.check_values;
  add_metrics(bound, parameters, bytes, report);
  add_parts_table(parameters, bytes, report);
  add_layers_table(bound.config, parameters, bytes, report);
  report::Table model_table = make_table("Model", {{"property", ""}, {"value", ""}});
  for (const auto& [key, value] : report.subject.items()) {
    const bool is_text = value.is_string();
    model_table.rows.push_back({key, is_text ? value.get<std::string>() : value.dump()});
  }
  report.tables["model"] = model_table;
  for (const std::string& line :
       model::compare_counts(model::count_parameters(bound.config), parameters)) {
    session.add_finding("checkpoint.count_differs", report::Severity::kWarning, line, "");
  }
  add_findings(bound, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_inspect_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<InspectArgs>();
  Options& options =
      line.add_command("inspect", "Shows what a checkpoint holds, from its headers alone",
                       [args, &context] { return run_inspect(*args, context); });
  options.positional("CHECKPOINT", args->checkpoint,
                     "Checkpoint directory, or a name in scenarios/checkpoints");
  options.group("Input");
  options.choice("--check-values", {"auto", "yes", "no"}, args->check_values,
                 "Also look for NaN and infinity in routers, biases and scales, which reads them; "
                 "auto does so up to 2 GiB of weights");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
}

}  // namespace moe::app
