// moe-plan compare-log: the prediction beside what an engine printed at its start.

#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/model/weight_format.hpp"
#include "lib/planner/log_compare.hpp"

namespace moe::app {
namespace {

using planner::LogTerm;
using planner::TermVerdict;
using report::MetricKind;

struct CompareArgs {
  std::string log;
  std::string model;
  std::string weights;
  std::string layout;
  std::string kv_dtype;
  std::string kernel_pad = "none";
  std::string scenarios;
  std::int64_t block_tokens = 0;
  double tolerance = 0.01;
  OutputOptions output;
};

report::Cell cell(const std::optional<double>& value) {
  return value ? report::Cell(*value) : report::Cell();
}

// "KV cache tokens" -> "kv_cache_tokens".
std::string metric_name(const LogTerm& term) {
  std::string name;
  for (const char c : term.name) {
    if (c == ' ') {
      name += '_';
    } else {
      name += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
  }
  if (term.unit == "bytes" && !name.ends_with("bytes") && name.find("bytes") == std::string::npos) {
    name += "_bytes";
  }
  return name;
}

void add_terms(const planner::LogComparison& comparison, report::Report& report) {
  report::Table table = make_table("Prediction and log", {{"term", ""},
                                                          {"unit", ""},
                                                          {"predicted", ""},
                                                          {"logged", ""},
                                                          {"predicted_over_logged", "1"},
                                                          {"verdict", ""},
                                                          {"how", ""}});
  std::int64_t exact = 0;
  std::int64_t compared = 0;
  for (const LogTerm& term : comparison.terms) {
    report::Cell ratio;
    if (term.predicted && term.logged && *term.logged != 0.0)
      ratio = *term.predicted / *term.logged;
    table.rows.push_back({term.name, term.unit, cell(term.predicted), cell(term.logged), ratio,
                          std::string(planner::verdict_name(term.verdict)), term.how});
    if (term.predicted) {
      report.metrics[metric_name(term) + ".predicted"] =
          value_metric(MetricKind::kModelled, term.unit, *term.predicted, term.how);
    }
    if (term.logged) {
      report.metrics[metric_name(term) + ".logged"] =
          value_metric(MetricKind::kMeasured, term.unit, *term.logged, "as the engine printed it");
    }
    if (!term.predicted || !term.logged) continue;
    ++compared;
    if (term.verdict == TermVerdict::kExact) ++exact;
  }
  report.tables["terms"] = table;
  report.metrics["terms_compared"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(compared),
                   "terms that are predicted and printed");
  report.metrics["terms_exact"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(exact),
                   "of these, equal within the digits that were printed");
}

void add_findings(const planner::EngineLog& log, const planner::LogComparison& comparison,
                  ReportSession& session) {
  for (const LogTerm& term : comparison.terms) {
    if (term.verdict != TermVerdict::kDifferent) continue;
    session.add_finding(
        "log.different", report::Severity::kWarning,
        fmt::format("{}: predicted {:.6g}, the log says {:.6g} ({:+.1f} %)", term.name,
                    *term.predicted, *term.logged,
                    100.0 * (*term.predicted - *term.logged) / *term.logged),
        "Check that MODEL is the log's model, and --weights, --kernel-pad, --kv-dtype, "
        "--block-tokens, --layout");
  }
  if (!comparison.start_difference.empty()) {
    session.add_finding("log.start", report::Severity::kWarning, comparison.start_difference,
                        "A prediction of bytes says nothing of other reasons to refuse");
  } else if (!log.has_started && log.engine == planner::Engine::kVllm) {
    session.add_finding("log.refused", report::Severity::kInfo,
                        fmt::format("the engine refused, as predicted: {}", log.error),
                        "Shorten the context, or give the cache more memory");
  }
}

int run_compare(const CompareArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::filesystem::path scenarios = require_scenarios(args.scenarios);
  const std::string text = read_text(args.log);
  const planner::EngineLog log = planner::parse_engine_log(text, args.log);
  // A GGUF file says itself what it is stored as.
  std::string weights = args.weights;
  if (weights.empty() && log.engine == planner::Engine::kLlamaCpp) {
    weights = model::find_weight_format(log.weight_dtype).value_or(std::string());
  }
  const PlanModel model = load_plan_model(args.model, scenarios, weights);
  planner::LogCompareOptions options;
  options.weights.pad = planner::parse_kernel_pad(args.kernel_pad);
  options.tolerance = args.tolerance;
  options.block_tokens = args.block_tokens;
  options.kv_dtype = args.kv_dtype;
  if (!args.layout.empty()) {
    options.has_layout = true;
    options.layout = parse_layout(args.layout);
  }
  const planner::LogComparison comparison = planner::compare_log(log, model.architecture, options);

  report::Report& report = session.report();
  report.subject = {{"kind", "engine_log"},
                    {"name", std::filesystem::path(args.log).filename().string()},
                    {"content_hash", text_hash(text)}};
  report.settings["command"] = "compare-log";
  report.settings["model"] = model.name;
  report.settings["engine"] = planner::engine_name(log.engine);
  report.settings["engine_version"] = log.version;
  report.settings["layout"] = planner::describe(comparison.layout);
  report.settings["has_started"] = log.has_started;
  add_terms(comparison, report);
  add_findings(log, comparison, session);
  const double compared = *report.metrics.at("terms_compared").value;
  if (compared == 0.0 && log.has_started) {
    session.invalidate("the log prints no term that is predicted");
  }
  report.highlights = {"terms_compared", "terms_exact"};
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_plan_compare_log_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CompareArgs>();
  Options& options = line.add_command(
      "compare-log", "Shows an engine's start-up log beside the prediction, term by term",
      [args, &context] { return run_compare(*args, context); });
  options.positional("LOG", args->log, "start-up log of vLLM, SGLang or llama.cpp");
  options.positional("MODEL", args->model,
                     "config.json, a directory with one, or a name in scenarios/models");
  options.group("What the log does not say");
  options.text("--weights", "FORMAT", args->weights, "Weight format instead of the checkpoint's");
  options.text("--layout", "WORDS", args->layout, "Layout instead of the log's: \"TP8 EP8\"");
  options.text("--kv-dtype", "TYPE", args->kv_dtype, "Cache dtype instead of the log's");
  options.integer("--block-tokens", args->block_tokens, {0, 1 << 20},
                  "Tokens of a cache block; 0 takes the log's or the engine's default");
  options.text("--kernel-pad", "NAME", args->kernel_pad,
               "MXFP4 experts as a kernel pads them: none, triton, marlin");
  options.real("--tolerance", args->tolerance, {0.0, 1.0}, "Share up to which a term is close");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
  options.example("moe-plan compare-log vllm.log Qwen3-30B-A3B",
                  "Weights, cache blocks, tokens and concurrency against the log");
}

}  // namespace moe::app
