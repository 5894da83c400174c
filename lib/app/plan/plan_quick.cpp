// moe-plan quick: the short formulas that circulate, each beside the right one.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/planner/quick_formulas.hpp"
#include "lib/report/human.hpp"

namespace moe::app {
namespace {

struct QuickArgs {
  std::string model = "Mixtral-8x22B-v0.1";
  std::string scenarios;
  std::string gpu = "h100-sxm";
  std::string hardware;
  std::string weight_format;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t ffn_width = 0;
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t num_ranks = 8;
  std::int64_t tokens = 512;
  std::int64_t context_tokens = 4096;
  std::int64_t output_tokens = 512;
  std::int64_t hbm_bytes = 80'000'000'000;
  std::int64_t system_bytes = 8'000'000'000;
  std::int64_t host_link_bytes_per_s = 50'000'000'000;
  bool has_fp8_dispatch = false;
  OutputOptions output;
};

planner::QuickInputs inputs_of(const QuickArgs& args, const planner::Accelerator& gpu) {
  planner::QuickInputs in;
  in.hidden_size = args.hidden_size;
  in.num_layers = args.num_layers;
  in.ffn_width = args.ffn_width;
  in.num_experts = args.num_experts;
  in.top_k = args.top_k;
  in.num_ranks = static_cast<std::int32_t>(args.num_ranks);
  in.tokens = args.tokens;
  in.context_tokens = args.context_tokens;
  in.output_tokens = args.output_tokens;
  in.hbm_bytes = static_cast<double>(args.hbm_bytes);
  in.system_bytes = static_cast<double>(args.system_bytes);
  in.host_link_bytes_per_s = static_cast<double>(args.host_link_bytes_per_s);
  in.has_fp8_dispatch = args.has_fp8_dispatch;
  in.gpu = gpu;
  in.fit.memory_bytes = gpu.usable_memory_bytes();
  return in;
}

std::string shown(const std::optional<double>& value, const std::string& unit) {
  return value ? report::human_value(*value, unit) : "-";
}

// Two tables: figures for people and machines, then the formulas and why.
void fill(const std::vector<planner::QuickRow>& rows, report::Report& report) {
  report::Table figures = make_table(
      "Quick formula and right value",
      {{"what", ""}, {"quick", ""}, {"right", ""}, {"right_over_quick", "1"}, {"why", ""}});
  report::Table formulas =
      make_table("Formulas", {{"id", ""}, {"quick_formula", ""}, {"right_formula", ""}});
  formulas.is_detail = true;
  for (const planner::QuickRow& row : rows) {
    const std::optional<double> factor = row.factor();
    figures.rows.push_back({row.title, shown(row.quick, row.unit), shown(row.right, row.unit),
                            factor ? report::Cell(*factor) : report::Cell(), row.why});
    formulas.rows.push_back({row.id, row.quick_formula, row.right_formula});
    const auto add = [&](const char* side, const std::optional<double>& value,
                         const std::string& formula) {
      const std::string name = fmt::format("{}.{}", row.id, side);
      report.metrics[name] =
          value ? value_metric(report::MetricKind::kModelled, row.unit, *value, formula)
                : absent_metric(report::MetricKind::kModelled, row.unit,
                                "the hardware file has no figure for it", formula);
    };
    add("quick", row.quick, row.quick_formula);
    add("right", row.right, row.right_formula);
  }
  report.tables["quick"] = figures;
  report.tables["quick_formulas"] = formulas;
}

int run_quick(const QuickArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::filesystem::path scenarios = require_scenarios(args.scenarios);
  const PlanModel model = load_plan_model(args.model, scenarios, args.weight_format);
  const PlanHardware hardware = load_plan_hardware(scenarios, args.hardware);
  const planner::Accelerator& gpu = planner::find_accelerator(hardware.file, args.gpu);
  report::Report& report = session.report();
  report.subject = {{"kind", "model_config"},
                    {"name", model.name},
                    {"content_hash", model.content_hash},
                    {"path", model.path.string()}};
  report.settings["command"] = "quick";
  report.settings["gpu"] = gpu.id;
  report.settings["num_ranks"] = args.num_ranks;
  report.settings["tokens"] = args.tokens;
  report.settings["context_tokens"] = args.context_tokens;
  report.settings["output_tokens"] = args.output_tokens;
  fill(planner::quick_rows(model.architecture, inputs_of(args, gpu)), report);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_plan_quick_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<QuickArgs>();
  Options& options = line.add_command(
      "quick", "Shows the short capacity formulas that circulate beside the right ones",
      [args, &context] { return run_quick(*args, context); });
  options.group("Input");
  options.text("--model", "MODEL", args->model,
               "config.json, a directory with one, or a name in scenarios/models");
  options.text("--weight-format", "FORMAT", args->weight_format,
               "Weights in this format instead of the checkpoint's");
  options.text("--gpu", "GPU", args->gpu, "GPU type, by id or part of its name");
  options.text("--hardware", "FILE", args->hardware, "Further GPU types, as JSON");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  const IntRange own{0, 100000000};
  options.group("What the quick formula takes");
  options.integer("--hidden-size", args->hidden_size, own, "Hidden size", "the model's");
  options.integer("--layers", args->num_layers, own, "Layers", "the model's");
  options.integer("--ffn-width", args->ffn_width, own, "Width of one expert", "the model's");
  options.integer("--experts", args->num_experts, own, "Experts of a layer", "the model's");
  options.integer("--top-k", args->top_k, own, "Experts a token goes to", "the model's");
  options.integer("--ranks", args->num_ranks, {1, 100000}, "GPUs that share the experts");
  options.integer("--tokens", args->tokens, {1, 1000000000}, "Tokens of the traffic example");
  options.integer("--context", args->context_tokens, {1, 1000000000}, "Prompt tokens of a request");
  options.integer("--output-tokens", args->output_tokens, {1, 1000000000},
                  "Generated tokens of a request");
  options.bytes("--hbm", args->hbm_bytes, "Memory that the quick formula starts from");
  options.bytes("--system", args->system_bytes, "What it leaves for the system");
  options.bytes("--host-link", args->host_link_bytes_per_s, "Bytes per second of the host link");
  options.flag("--fp8-dispatch", args->has_fp8_dispatch, "Tokens travel as FP8 on the way out");
  add_output_options(options, args->output);
  options.example("moe-plan quick --hidden-size 4096 --layers 32",
                  "the published example: Mixtral 8x22B with the sizes of 8x7B");
}

}  // namespace moe::app
