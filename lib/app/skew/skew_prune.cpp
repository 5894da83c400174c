// moe-skew prune: which experts the recorded traffic hardly uses, and what they carry.

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/skew/skew_commands.hpp"
#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/json/write.hpp"
#include "lib/routing/prune.hpp"

namespace moe::app {
namespace {

struct PruneArgs {
  InputArgs input;
  std::vector<std::int64_t> percents = {25, 50, 75};
  std::vector<std::string> judges;
  std::string list;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

// Layers with load; the others are dense and have nothing to prune.
struct Profile {
  std::string name;
  std::vector<std::int32_t> layers;
  routing::UsageProfile usage;
};

Profile read_profile(routing::RoutingInput& input) {
  Profile profile;
  profile.name = input.info.name;
  const routing::UsageProfile all = routing::usage_profile(input);
  profile.usage.num_tokens = all.num_tokens;
  const auto num_experts = static_cast<std::ptrdiff_t>(input.info.num_experts);
  for (std::int64_t l = 0; l < input.info.num_layers(); ++l) {
    const auto begin = all.counts.begin() + l * num_experts;
    if (std::all_of(begin, begin + num_experts, [](std::int64_t c) { return c == 0; })) continue;
    profile.layers.push_back(input.info.layers[static_cast<std::size_t>(l)]);
    profile.usage.counts.insert(profile.usage.counts.end(), begin, begin + num_experts);
    if (all.mass.empty()) continue;
    const auto mass = all.mass.begin() + l * num_experts;
    profile.usage.mass.insert(profile.usage.mass.end(), mass, mass + num_experts);
  }
  return profile;
}

double mean_of(const std::vector<routing::PrunedLayer>& layers,
               double routing::PrunedLayer::*figure) {
  double sum = 0.0;
  for (const routing::PrunedLayer& layer : layers) sum += layer.*figure;
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

class PruneRun {
 public:
  PruneRun(const PruneArgs& args, ReportSession& session)
      : args_(args), session_(session), report_(session.report()) {}

  void run() {
    routing::RoutingInput input = open_input(args_.input);
    const routing::InputCheck check = routing::check_input(input);
    add_sanity(check, session_);
    report_.subject = describe_input(input.info);
    report_.settings["command"] = "prune";
    report_.settings["percents"] = args_.percents;
    report_.settings["judged_on"] = args_.judges;
    if (check.num_assignments == 0) return;
    profile_ = read_profile(input);
    top_k_ = input.info.top_k;
    num_experts_ = input.info.num_experts;
    read_judges();
    report_.settings["ranked_by"] = profile_.usage.mass.empty() ? "assignments" : "router weights";
    set_metric(report_, "model_experts_count", "1", static_cast<double>(num_experts_), "",
               "routed experts of a layer");
    set_profile_tokens(check);
    for (const std::int64_t percent : args_.percents) add_level(percent);
    report_.tables["layers"] = std::move(layers_);
    report_.tables["levels"] = std::move(levels_);
    report_.charts.push_back({"Routing mass lost by layer",
                              report::ChartKind::kLine,
                              "layers",
                              "layer",
                              {"lost_mass_share"},
                              "pruned_percent"});
    if (!args_.list.empty()) json::write_file(args_.list, list_);
    add_missing();
  }

 private:
  void read_judges() {
    for (const std::string& path : args_.judges) {
      InputArgs args = args_.input;
      args.path = path;
      args.more_paths.clear();
      routing::RoutingInput input = open_input(args);
      routing::require_sane(input, routing::check_input(input));
      Profile judge = read_profile(input);
      if (judge.layers != profile_.layers || input.info.num_experts != num_experts_) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: expected the layers and {} experts of {}, found {} layers of "
                                "{}",
                                path, num_experts_, profile_.name, judge.layers.size(),
                                input.info.num_experts));
      }
      judges_.push_back(std::move(judge));
    }
  }

  void set_profile_tokens(const routing::InputCheck& check) {
    std::optional<double> tokens;
    if (check.num_tokens > 0) {
      tokens = static_cast<double>(check.num_tokens);
    } else if (top_k_ > 0) {
      tokens = static_cast<double>(check.num_assignments) /
               static_cast<double>(top_k_ * static_cast<std::int64_t>(profile_.layers.size()));
    }
    set_metric(report_, "pruning_profile_tokens_count", "1", tokens,
               "counts alone: --top-k N tells tokens from assignments",
               "routed tokens that the usage profile rests on");
  }

  void add_level(std::int64_t percent) {
    const std::vector<routing::PrunedLayer> pruned =
        routing::prune_experts(profile_.usage, static_cast<std::int64_t>(profile_.layers.size()),
                               static_cast<double>(percent) / 100.0, std::max(top_k_, 1));
    add_row(percent, profile_.name, true, pruned);
    json::Json& of_level = list_[fmt::format("{}", percent)];
    for (std::size_t l = 0; l < pruned.size(); ++l) {
      of_level[fmt::format("{}", profile_.layers[l])] = pruned[l].experts;
      layers_.rows.push_back({count_cell(percent), count_cell(profile_.layers[l]),
                              count_cell(static_cast<std::int64_t>(pruned[l].experts.size())),
                              pruned[l].lost_share, pruned[l].lost_mass_share,
                              fmt::format("{}", json::Json(pruned[l].experts).dump())});
    }
    set_metric(report_, fmt::format("pruned_{}_percent_lost_mass_ratio", percent), "1",
               mean_of(pruned, &routing::PrunedLayer::lost_mass_share), "",
               "routing mass on the pruned experts, mean over layers, on the profile itself");
    double worst = 0.0;
    for (const Profile& judge : judges_) {
      const auto judged = routing::judge_pruning(pruned, judge.usage);
      add_row(percent, judge.name, false, judged);
      worst = std::max(worst, mean_of(judged, &routing::PrunedLayer::lost_mass_share));
    }
    if (judges_.empty()) return;
    set_metric(report_, fmt::format("pruned_{}_percent_lost_mass_elsewhere_ratio", percent), "1",
               worst, "", "the same on the worst of the other traces");
  }

  void add_row(std::int64_t percent, const std::string& trace, bool is_profile,
               const std::vector<routing::PrunedLayer>& pruned) {
    const auto worst = std::max_element(
        pruned.begin(), pruned.end(),
        [](const auto& a, const auto& b) { return a.lost_mass_share < b.lost_mass_share; });
    const auto worst_layer =
        profile_.layers[static_cast<std::size_t>(std::distance(pruned.begin(), worst))];
    levels_.rows.push_back({count_cell(percent), trace, is_profile,
                            count_cell(static_cast<std::int64_t>(pruned.front().experts.size())),
                            mean_of(pruned, &routing::PrunedLayer::lost_share),
                            mean_of(pruned, &routing::PrunedLayer::lost_mass_share),
                            worst->lost_mass_share, count_cell(worst_layer)});
  }

  // What only a run of the model can tell.
  void add_missing() {
    const std::string reason =
        "a trace cannot tell; run the pruned model with moe-bench and merge the reports";
    set_metric(report_, "pruning_speedup_ratio", "1", std::nullopt, reason,
               "throughput of the pruned model over the whole one");
    set_metric(report_, "pruning_score_loss_points", "1", std::nullopt, reason,
               "score of the whole model minus score of the pruned one");
    if (!judges_.empty()) return;
    session_.add_finding("prune.one_trace", report::Severity::kWarning,
                         "the loss is judged on the traffic that chose the experts; on other "
                         "traffic it is larger",
                         "--judge FILE judges the same experts on another trace");
  }

  const PruneArgs& args_;
  ReportSession& session_;
  report::Report& report_;
  Profile profile_;
  std::vector<Profile> judges_;
  std::int32_t top_k_ = 0;
  std::int32_t num_experts_ = 0;
  json::Json list_ = json::Json::object();
  report::Table layers_ = make_table("Experts to prune by layer", {{"pruned_percent", "1"},
                                                                   {"layer", "1"},
                                                                   {"num_pruned", "1"},
                                                                   {"lost_share", "1"},
                                                                   {"lost_mass_share", "1"},
                                                                   {"experts", ""}});
  report::Table levels_ = make_table("Routing lost by pruning", {{"pruned_percent", "1"},
                                                                 {"trace", ""},
                                                                 {"is_profile", ""},
                                                                 {"num_pruned_per_layer", "1"},
                                                                 {"lost_share", "1"},
                                                                 {"lost_mass_share", "1"},
                                                                 {"worst_layer_lost_mass", "1"},
                                                                 {"worst_layer", "1"}});
};

int run_prune(const PruneArgs& args, const ToolContext& context) {
  if (!args.list.empty()) check_writable(args.list, "--list");
  ReportSession session(context, args.output, args.acceptance);
  PruneRun(args, session).run();
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_prune_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<PruneArgs>();
  Options& options = line.add_command(
      "prune", "Names the experts that the traffic hardly uses, and the routing lost with them",
      [args, &context] { return run_prune(*args, context); });
  add_input_options(options, args->input);
  options.group("What to prune");
  options.integers("--percents", args->percents, {1, 99},
                   "Shares of each layer's experts, percent");
  options.texts("--judge", "FILE", args->judges,
                "Another trace on which the same experts are judged; may be repeated");
  options.text("--list", "FILE", args->list,
               "Write the experts as JSON: {\"25\": {\"3\": [0, 7]}}: percent, layer, experts");
  add_output_options(options, args->output);
  add_acceptance_options(options, args->acceptance);
  options.example("moe-skew prune english.safetensors --judge python.safetensors",
                  "what experts unused in English would cost on Python");
}

}  // namespace moe::app
