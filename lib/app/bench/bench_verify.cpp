// moe-bench verify: does this engine compute what a golden file says?

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/format_names.hpp"
#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/app/bench/weight_cast.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/engine/verify.hpp"

namespace moe::app {
namespace {

struct VerifyArgs {
  std::string checkpoint;
  std::string scenarios;
  std::string golden;
  EngineArgs engine;
  OutputOptions output;
};

// Beside the checkpoint's files.
std::filesystem::path golden_of(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(checkpoint, ignored);
  return (is_file ? checkpoint.parent_path() : checkpoint) / "golden.safetensors";
}

std::string describe_difference(const engine::TensorComparison& at) {
  const std::string where = at.layer < 0 ? std::string() : fmt::format("layer {}, ", at.layer);
  return fmt::format(
      "first difference: {}, {}stage {} ({}): row {}, column {}: expected {}, found "
      "{}; {} of {} values differ, largest error {:.3g}",
      at.phase, where, at.stage, at.name, at.first_wrong_row, at.first_wrong_col, at.expected,
      at.found, at.num_wrong, at.num_values, at.max_error);
}

void fill_tables(const engine::VerifyResult& result, report::Report& report) {
  report::Table stages =
      make_table("Compared with the golden file", {{"phase", ""},
                                                   {"stage", ""},
                                                   {"tensors", "1"},
                                                   {"values", "1"},
                                                   {"wrong", "1"},
                                                   {"max_error", "1"},
                                                   {"max_error_over_allowed", "1"},
                                                   {"result", ""}});
  // One row per phase and stage, in the order in which they first appear.
  struct Row {
    std::string phase, stage;
    std::int64_t tensors = 0, values = 0, wrong = 0;
    double error = 0.0, ratio = 0.0;
  };
  std::vector<Row> rows;
  report::Table tensors = make_table("Every tensor", {{"phase", ""},
                                                      {"tensor", ""},
                                                      {"layer", "1"},
                                                      {"values", "1"},
                                                      {"wrong", "1"},
                                                      {"max_error", "1"},
                                                      {"max_error_over_allowed", "1"}});
  tensors.is_detail = true;
  for (const engine::TensorComparison& at : result.comparisons) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
      return other.phase == at.phase && other.stage == at.stage;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), Row{at.phase, at.stage});
    ++row->tensors;
    row->values += at.num_values;
    row->wrong += at.num_wrong;
    row->error = std::max(row->error, at.max_error);
    row->ratio = std::max(row->ratio, at.max_error_ratio);
    tensors.rows.push_back({at.phase, at.name, at.layer < 0 ? report::Cell() : count_cell(at.layer),
                            count_cell(at.num_values), count_cell(at.num_wrong), at.max_error,
                            at.max_error_ratio});
  }
  for (const Row& row : rows) {
    stages.rows.push_back({row.phase, row.stage, count_cell(row.tensors), count_cell(row.values),
                           count_cell(row.wrong), row.error, row.ratio,
                           std::string(row.wrong == 0 ? "same" : "DIFFERS")});
  }
  report.tables["verify_stages"] = stages;
  report.tables["verify_tensors"] = tensors;
}

void fill_report(const engine::VerifyResult& result, ReportSession& session) {
  report::Report& report = session.report();
  const auto num_wrong =
      std::count_if(result.comparisons.begin(), result.comparisons.end(),
                    [](const engine::TensorComparison& at) { return !at.passed(); });
  report.metrics["verify_tensors_compared"] = value_metric(
      report::MetricKind::kMeasured, "1", static_cast<double>(result.comparisons.size()),
      "tensors of the golden file "
      "that were computed and compared, in every phase");
  report.metrics["verify_tensors_wrong"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(num_wrong),
                   "of these, tensors with at least one value outside its tolerance; expert ids "
                   "and greedy tokens are compared exactly");
  fill_tables(result, report);
  if (result.first_difference) {
    const engine::TensorComparison& at = result.comparisons[*result.first_difference];
    json::Json evidence;
    evidence["phase"] = at.phase;
    evidence["layer"] = at.layer < 0 ? json::Json(nullptr) : json::Json(at.layer);
    evidence["stage"] = at.stage;
    evidence["tensor"] = at.name;
    session.add_finding("verify.difference", report::Severity::kError, describe_difference(at),
                        "Everything before this stage agrees: look at the arithmetic of this one, "
                        "or try --isa scalar to tell a kernel from a formula",
                        evidence);
    session.invalidate("the engine's values differ from the golden file");
  }
  if (!result.not_compared.empty()) {
    session.add_finding("verify.not_compared", report::Severity::kInfo,
                        fmt::format("{} tensors of the golden file have no counterpart and were "
                                    "not compared, the first is {}",
                                    result.not_compared.size(), result.not_compared.front()),
                        "");
  }
}

int run_verify(const VerifyArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::filesystem::path directory = find_checkpoint(args.checkpoint, args.scenarios);
  model::BoundModel model = model::bind_checkpoint(directory);
  const std::filesystem::path golden =
      args.golden.empty() ? golden_of(directory) : std::filesystem::path(args.golden);
  std::error_code ignored;
  if (!std::filesystem::exists(golden, ignored)) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: no such golden file; make one with scripts/make_golden.py and name "
                    "it with --golden",
                    golden.string()));
  }
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  const std::optional<Quantized> quantized =
      apply_quantize_option(args.engine, progress, *context.interrupt, model);
  EngineSetup setup = resolve_engine(args.engine, model);
  setup.options.max_context = 1;
  check_fits(model, setup.options);
  engine::VerifyOptions options;
  options.num_threads = setup.options.num_threads;
  options.isa = setup.options.isa;
  options.activations = setup.options.activations;
  options.max_batch_tokens = setup.options.max_batch_tokens;
  options.max_memory_bytes = setup.options.max_memory_bytes;
  const engine::VerifyResult result =
      engine::verify(model, golden, options, progress, *context.interrupt);

  report::Report& report = session.report();
  report.subject = describe_checkpoint(directory, model);
  report.settings["command"] = "verify";
  report.settings["golden"] = golden.string();
  report.settings["threads"] = options.num_threads;
  report.settings["isa"] = kernels::isa_name(options.isa);
  report.settings["isa_reason"] = setup.isa_reason;
  report.settings["activations"] = activation_format_name(setup.options.activations);
  add_activation_finding(setup, session);
  fill_report(result, session);
  report_quantization(model, quantized ? &*quantized : nullptr, report);
  int exit_code = kExitOk;
  if (!result.passed && !result.is_partial) exit_code = kExitCorruptData;
  if (result.is_partial) {
    report.validity.partial = true;
    report.validity.reasons.emplace_back("interrupted");
    exit_code = result.first_difference ? kExitCorruptData : kExitRuntime;
  }
  if (result.comparisons.empty() && !result.is_partial) {
    session.invalidate("the golden file holds nothing that could be compared");
    exit_code = kExitNothingMeasured;
  }
  return session.finish(exit_code, std::nullopt, kernels::isa_name(options.isa));
}

}  // namespace

void add_verify_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<VerifyArgs>();
  Options& options =
      line.add_command("verify", "Compares the engine with a golden file, stage by stage",
                       [args, &context] { return run_verify(*args, context); });
  options.positional("CHECKPOINT", args->checkpoint,
                     "Checkpoint directory, or a name in scenarios/checkpoints");
  options.group("Input");
  options.text("--golden", "FILE", args->golden,
               "Golden file [default: golden.safetensors in the checkpoint]");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_engine_options(options, args->engine);
  args->engine.activations = "f32";
  options.choice(
      "--activations", {"f32", "int8"}, args->engine.activations,
      "f32, which golden files hold for; int8, with int8 and int4 weights, shows how far "
      "this looser mode is off, by the same tolerances");
  add_quantize_option(options, args->engine);
  add_output_options(options, args->output);
  options.example("moe-bench verify tinymoe-qwen3",
                  "Exit code 0: all values agree; 6: the first stage that differs is named");
}

}  // namespace moe::app
