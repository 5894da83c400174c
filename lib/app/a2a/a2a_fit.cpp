// moe-a2a fit: constants from measured points, as they come with the toolkit or from your own.

#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/json/write.hpp"

namespace moe::app {
namespace {

struct FitArgs {
  std::string collectives = "collectives_points.csv";
  std::string moe = "collectives_moe_points.csv";
  std::string logs = "collectives_logs.csv";
  std::string write;
  std::string scenarios;
  OutputOptions output;
};

constexpr const char* kSource =
    "scenarios/measured/COLLECTIVES.md: aiconfigurator-core 0.12.0 (Apache-2.0) and two public "
    "logs "
    "of nccl-tests";

int run_fit(const FitArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  if (!args.write.empty()) check_writable(args.write, "--write");
  const std::filesystem::path scenarios = scenarios_dir(args.scenarios);
  const auto find = [&](const std::string& file) {
    return find_scenario(file, scenarios, "measured", "");
  };
  topology::MeasuredLaws laws;
  laws.source = kSource;
  laws.collectives =
      topology::fit_collectives(topology::read_collective_points(find(args.collectives)));
  for (topology::CollectiveSeries& series :
       topology::fit_logs(topology::read_collective_points(find(args.logs)))) {
    laws.collectives.push_back(std::move(series));
  }
  laws.moe = topology::fit_moe(topology::read_moe_points(find(args.moe)));
  report::Report& report = session.report();
  report.subject =
      json::Json{{"kind", "topology"}, {"name", args.collectives}, {"content_hash", nullptr}};
  report.settings["command"] = "fit";
  report.settings["collectives"] = args.collectives;
  report.settings["moe"] = args.moe;
  report.settings["logs"] = args.logs;
  report::Table table = make_table("Series", {{"gpu", ""},
                                              {"library", ""},
                                              {"operation", ""},
                                              {"ranks", "1"},
                                              {"points", "1"},
                                              {"alpha_s", "s"},
                                              {"beta_bytes_per_s", "bytes/s"},
                                              {"s_per_sqrt_byte", "1"},
                                              {"held_out_alpha_beta_p50", "1"},
                                              {"held_out_sqrt_p50", "1"},
                                              {"held_out_p50", "1"}});
  for (const topology::CollectiveSeries& series : laws.collectives) {
    const topology::SizeLaw& law = series.law;
    table.rows.push_back(
        {series.gpu, series.library, series.op, count_cell(series.num_ranks),
         count_cell(series.num_points), law.alpha_s,
         law.s_per_byte > 0.0 ? report::Cell(1.0 / law.s_per_byte) : report::Cell(),
         law.s_per_sqrt_byte, series.plain_error.p50, series.law_error.p50, series.error.p50});
  }
  report.tables["series"] = std::move(table);
  report.metrics["series_count"] = value_metric(
      report::MetricKind::kModelled, "1",
      static_cast<double>(laws.collectives.size() + laws.moe.size()), "series that were fitted");
  report.highlights = {"series_count"};
  if (!args.write.empty()) json::write_file(args.write, topology::laws_to_json(laws), {1});
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_fit_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<FitArgs>();
  Options& options = line.add_command("fit", "Makes the model's constants from measured points",
                                      [args, &context] { return run_fit(*args, context); });
  options.group("Input");
  options.text("--collectives", "FILE", args->collectives, "CSV of collectives");
  options.text("--moe", "FILE", args->moe, "CSV of dispatch and combine");
  options.text("--logs", "FILE", args->logs, "CSV of whole logs of nccl-tests");
  options.text("--write", "FILE", args->write, "Write the constants to FILE");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
}

}  // namespace moe::app
