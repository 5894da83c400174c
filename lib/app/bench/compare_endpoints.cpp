// moe-bench compare: the same requests at the same times to several servers, in turns, one table.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/requests_jsonl.hpp"
#include "lib/app/bench/serve_measure.hpp"
#include "lib/app/bench/serve_report.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/stats/compare.hpp"

namespace moe::app {
namespace {

struct CompareArgs {
  std::vector<std::string> endpoints;
  std::int64_t rounds = 3;
  ServeArgs serve;
};

struct NamedServer {
  std::string name;
  ServeTarget target;
  std::unique_ptr<ServeMeter> meter;
  std::vector<client::LoadResult> rounds;
  bool is_gone = false;
};

bool is_name(const std::string& name) {
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

std::vector<NamedServer> parse_servers(const std::vector<std::string>& endpoints) {
  std::vector<NamedServer> servers;
  std::set<std::string> names;
  for (const std::string& text : endpoints) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos || !is_name(name) || !names.insert(name).second) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("\"{}\": expected NAME=URL with names of a-z, 0-9 and _, each once",
                              printable(text)));
    }
    NamedServer server;
    server.name = name;
    server.target.endpoint.base_url = text.substr(equals + 1);
    servers.push_back(std::move(server));
  }
  if (servers.size() < 2) throw Error(ErrorCode::kUsage, "give at least two servers: NAME=URL");
  return servers;
}

ServePointOutcome outcome_of(NamedServer& server, const ServePoint& point, const LoadArgs& load) {
  ServePointOutcome outcome;
  outcome.point = point;
  outcome.result = client::merge_rounds(std::move(server.rounds));
  const client::ServiceLevel level = service_level(load);
  outcome.figures = client::figures_of(outcome.result, level);
  outcome.verdict = client::judge_client(outcome.result, {});
  outcome.meets_level = outcome.figures.shares.all && *outcome.figures.shares.all >= level.share;
  return outcome;
}

// Every figure of a server over the first's, and whether chance alone would do that.
void add_ratios(const std::vector<NamedServer>& servers,
                const std::vector<ServePointOutcome>& outcomes, report::Report& report) {
  report::Table table = make_table(
      "Against " + servers.front().name,
      {{"server", ""}, {"metric", ""}, {"median_ratio", "1"}, {"p_value", "1"}, {"differs", ""}});
  const auto add = [&](std::size_t i, const char* name,
                       std::vector<double> client::LoadFigures::*samples) {
    const stats::Comparison comparison =
        stats::compare(outcomes.front().figures.*samples, outcomes[i].figures.*samples);
    const auto cell = [](const std::optional<double>& value) {
      return value ? report::Cell(*value) : report::Cell();
    };
    table.rows.push_back({servers[i].name, std::string(name), cell(comparison.median_ratio),
                          cell(comparison.p_value),
                          comparison.enough_samples && comparison.p_value
                              ? report::Cell(*comparison.p_value < 0.01)
                              : report::Cell()});
  };
  for (std::size_t i = 1; i < servers.size(); ++i) {
    add(i, "ttft_s", &client::LoadFigures::ttft_s);
    add(i, "tpot_s", &client::LoadFigures::tpot_s);
    add(i, "e2el_s", &client::LoadFigures::e2e_s);
  }
  report.tables["ratios"] = std::move(table);
}

void run_rounds(const CompareArgs& args, const ServePoint& point, const ToolContext& context,
                std::vector<NamedServer>& servers) {
  ServeOutcome ignored;
  for (NamedServer& server : servers) server.meter->warm_up(point, ignored);
  for (std::int64_t round = 0; round < args.rounds; ++round) {
    for (std::size_t i = 0; i < servers.size(); ++i) {
      // Each round begins with another server: what warms up or tires hits all alike.
      NamedServer& server = servers[(i + static_cast<std::size_t>(round)) % servers.size()];
      if (server.is_gone || context.interrupt->requested()) continue;
      server.rounds.push_back(server.meter->run_round(point));
      server.is_gone = server.rounds.back().end == client::LoadEnd::kServerGone;
    }
  }
}

int run_compare(const CompareArgs& args, const ToolContext& context) {
  const ServeArgs& serve = args.serve;
  check_load(serve.load, serve.request);
  if (serve.load.finds_knee) throw Error(ErrorCode::kUsage, "compare measures one load: no --knee");
  std::vector<NamedServer> servers = parse_servers(args.endpoints);
  ReportSession session(context, serve.output, serve.acceptance);
  if (!serve.requests_jsonl.empty()) check_writable(serve.requests_jsonl, "--requests-jsonl");
  const ServeInputs inputs = read_inputs(serve.load, serve.request);
  const std::vector<ServePoint> points = load_points(serve.load, inputs);
  if (points.size() != 1) throw Error(ErrorCode::kUsage, "compare measures one load at a time");
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(serve.output.is_quiet), clock);
  for (NamedServer& server : servers) {
    server.target =
        probe_target(make_endpoint(server.target.endpoint.base_url, serve.server), serve.server,
                     serve.request, inputs.prefers_chat, inputs.uses_ids(), context);
    server.meter =
        std::make_unique<ServeMeter>(serve, inputs, server.target, progress, *context.interrupt);
  }
  run_rounds(args, points.front(), context, servers);

  report::Report& report = session.report();
  report.subject = serve_subject(servers.front().target);
  std::string names;
  json::Json addresses = json::Json::object();
  report::Table table = make_table("Servers", load_columns());
  table.columns.front().name = "server";
  std::vector<ServePointOutcome> outcomes;
  std::optional<RequestsFile> requests;
  if (!serve.requests_jsonl.empty()) requests.emplace(serve.requests_jsonl);
  bool is_gone = false;
  for (NamedServer& server : servers) {
    outcomes.push_back(outcome_of(server, points.front(), serve.load));
    const ServePointOutcome& outcome = outcomes.back();
    const ServeFacts facts{&serve, &inputs, &server.target};
    add_load_metrics(outcome, "." + server.name, report);
    add_point_findings(outcome, facts, server.name, session);
    std::vector<report::Cell> row = load_row(outcome);
    row.front() = server.name;
    table.rows.push_back(std::move(row));
    names += (names.empty() ? "" : ", ") + server.name;
    addresses[server.name] = serve_subject(server.target);
    is_gone = is_gone || server.is_gone;
    if (requests) requests->add(outcome.result, server.name);
  }
  if (requests) requests->commit();
  report.subject["name"] = names;
  report.subject["servers"] = addresses;
  report.settings["command"] = "compare";
  report.settings["rounds"] = args.rounds;
  report.settings["load"] = points.front().label;
  fill_serve_settings({&serve, &inputs, &servers.front().target}, report.settings);
  report.tables["servers"] = std::move(table);
  add_ratios(servers, outcomes, report);
  for (const char* metric : {"output_tokens_per_s", "ttft_p50_s", "e2el_p50_s"}) {
    report.charts.push_back({metric, report::ChartKind::kBar, "servers", "server", {metric}, ""});
  }
  for (const NamedServer& server : servers) {
    report.highlights.push_back("ttft_s." + server.name);
    report.highlights.push_back("output_tokens_per_s." + server.name);
  }
  int exit_code = report.validity.valid ? kExitOk : kExitNothingMeasured;
  if (is_gone || context.interrupt->requested()) exit_code = kExitRuntime;
  return session.finish(exit_code, serve.load.seed, std::nullopt);
}

}  // namespace

void add_compare_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CompareArgs>();
  Options& options = line.add_command("compare", "Put the same load on several servers, in turns",
                                      [args, &context] { return run_compare(*args, context); });
  options.positionals("NAME=URL", args->endpoints, "Servers, with the names the table shows");
  options.group("Comparing");
  options.integer("--rounds", args->rounds, {1, 1000}, "Times that each server gets the load");
  add_load_options(options, args->serve.load);
  add_request_options(options, args->serve.request);
  add_server_options(options, args->serve.server);
  options.group("Measuring");
  options.text("--requests-jsonl", "FILE", args->serve.requests_jsonl,
               "One line of JSON a request");
  options.flag("--accept-client-bound", args->serve.accepts_client_bound,
               "Report a run that this client limited as valid; the finding stays");
  add_acceptance_options(options, args->serve.acceptance);
  add_output_options(options, args->serve.output);
  options.example("moe-bench compare vllm=http://a:8000 sglang=http://b:30000 --concurrency 16",
                  "two servers, three rounds each, interleaved");
}

}  // namespace moe::app
