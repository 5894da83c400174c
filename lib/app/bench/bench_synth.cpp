// moe-bench synth: a random checkpoint of a published shape.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/json/read.hpp"
#include "lib/json/write.hpp"
#include "lib/model/dtype.hpp"
#include "lib/model/synth.hpp"

namespace moe::app {
namespace {

struct SynthArgs {
  std::string config;
  std::string scenarios;
  std::string out;
  std::string dtype = "bf16";
  std::int64_t seed = 1;
  double router_skew = 0.0;
  std::int64_t shard_bytes = 5'000'000'000;
  std::int64_t num_layers = 0;
  std::int64_t num_threads = 0;
  OutputOptions output;
};

std::filesystem::path config_file(const SynthArgs& args) {
  const std::filesystem::path path =
      find_scenario(args.config, scenarios_dir(args.scenarios), "models", ".json");
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path / "config.json" : path;
}

// The config with another number of layers: the lists that have an entry a layer are cut with it.
std::string with_layers(json::Json config, std::int64_t num_layers,
                        const std::filesystem::path& file) {
  const char* kLayers = "num_hidden_layers";
  if (!config.is_object() || !config.contains(kLayers) || !config.at(kLayers).is_number_integer()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected an integer {}", file.string(), kLayers));
  }
  const auto before = config.at(kLayers).get<std::int64_t>();
  if (num_layers > before) {
    throw Error(ErrorCode::kUsage, fmt::format("--layers {}: the config has {}; give at most that",
                                               num_layers, before));
  }
  config[kLayers] = num_layers;
  for (auto& [key, value] : config.items()) {
    const bool is_per_layer = value.is_array() &&
                              static_cast<std::int64_t>(value.size()) == before &&
                              (key == "layer_types" || key == "moe_layer_freq");
    if (!is_per_layer) continue;
    while (static_cast<std::int64_t>(value.size()) > num_layers) value.erase(value.size() - 1);
  }
  // Lists and counts of layers that must not name one that is gone.
  if (config.contains("mlp_only_layers") && config.at("mlp_only_layers").is_array()) {
    json::Json kept = json::Json::array();
    for (const json::Json& layer : config.at("mlp_only_layers")) {
      if (layer.is_number_integer() && layer.get<std::int64_t>() < num_layers)
        kept.push_back(layer);
    }
    config["mlp_only_layers"] = std::move(kept);
  }
  const char* kDense = "first_k_dense_replace";
  if (config.contains(kDense) && config.at(kDense).is_number_integer()) {
    config[kDense] = std::min(config.at(kDense).get<std::int64_t>(), num_layers);
  }
  return json::dump(config, file.string());
}

model::Dtype dtype_of(const std::string& name) {
  if (name == "f32") return model::Dtype::kF32;
  return name == "f16" ? model::Dtype::kF16 : model::Dtype::kBf16;
}

int run_synth(const SynthArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  if (args.out.empty()) throw Error(ErrorCode::kUsage, "expected --out DIR");
  const std::filesystem::path file = config_file(args);
  // Published configs hold the literal Infinity in places; the writer keeps the text as it is.
  json::ReadLimits limits;
  limits.allow_infinity_literal = true;
  const json::Json config = json::parse_file(file.string(), limits);
  const std::string text = args.num_layers > 0 ? with_layers(config, args.num_layers, file)
                                               : json::dump(config, file.string());
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  ThreadPool pool(args.num_threads > 0 ? static_cast<int>(args.num_threads) : num_usable_threads());
  model::SynthOptions options;
  options.dtype = dtype_of(args.dtype);
  options.seed = static_cast<std::uint64_t>(args.seed);
  options.router_skew = args.router_skew;
  options.shard_bytes = args.shard_bytes;
  options.pool = &pool;
  options.progress = &progress;
  options.interrupt = context.interrupt;
  const double begin_s = clock.now_s();
  const model::SynthResult result = model::synth_checkpoint(text, file, args.out, options);
  const double write_s = clock.now_s() - begin_s;

  report::Report& report = session.report();
  report.subject["kind"] = "model_config";
  report.subject["name"] = file.stem().string() == "config" ? file.parent_path().filename().string()
                                                            : file.stem().string();
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "synth";
  report.settings["config"] = file.string();
  report.settings["out"] = args.out;
  report.settings["dtype"] = args.dtype;
  report.settings["seed"] = args.seed;
  report.settings["router_skew"] = args.router_skew;
  report.settings["shard_bytes"] = args.shard_bytes;
  report.settings["layers"] = args.num_layers;
  const auto counted = [&](const char* name, const char* unit, std::int64_t value,
                           const char* how) {
    report.metrics[name] =
        value_metric(report::MetricKind::kModelled, unit, static_cast<double>(value), how);
  };
  counted("tensors_written", "1", result.num_tensors, "tensors of the checkpoint");
  counted("parameters_written", "1", result.num_parameters, "elements of these tensors");
  counted("weight_bytes", "bytes", result.tensor_bytes, "bytes of these tensors");
  counted("shards_written", "1", result.num_shards, "safetensors files");
  report.metrics["write_bytes_per_s"] =
      value_metric(report::MetricKind::kMeasured, "bytes/s",
                   static_cast<double>(result.tensor_bytes) / std::max(write_s, 1e-9),
                   "bytes written / time to make and write them");
  session.add_finding("synth.random_weights", report::Severity::kInfo,
                      "the weights are random: speed and routing mean something, text does not; no "
                      "tokenizer is written",
                      "");
  return session.finish(kExitOk, args.seed, std::nullopt);
}

}  // namespace

void add_synth_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<SynthArgs>();
  Options& options =
      line.add_command("synth", "Writes a checkpoint of random weights of any supported shape",
                       [args, &context] { return run_synth(*args, context); });
  options.positional("CONFIG", args->config,
                     "config.json, a checkpoint directory, or a name in scenarios/models");
  options.group("What to write");
  options.text("--out", "DIR", args->out, "New or empty directory to write to (required)");
  options.choice("--dtype", {"bf16", "f16", "f32"}, args->dtype,
                 "Of the weights that the config's quantisation leaves alone");
  options.integer("--seed", args->seed, {0}, "Seed of the weights");
  options.real("--router-skew", args->router_skew, {0.0, 10.0},
               "Zipf exponent of the experts' popularity; 0: all equally popular");
  options.bytes("--shard-size", args->shard_bytes, "Largest weight file", "5GB");
  options.integer("--layers", args->num_layers, {0, 65536}, "Fewer layers than the config has",
                  "the config's");
  options.group("How to run");
  options.integer("--threads", args->num_threads, {0, 4096}, "Threads; 0 takes all",
                  "all that the process may use");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
  options.example("moe-bench synth OLMoE-1B-7B --out /data/olmoe --router-skew 1",
                  "The shape of OLMoE with a skewed router");
}

}  // namespace moe::app
