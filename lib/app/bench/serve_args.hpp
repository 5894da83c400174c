#pragma once

// What moe-bench serve and moe-bench compare were asked to do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/output.hpp"
#include "lib/app/report_session.hpp"
#include "lib/client/load_figures.hpp"

namespace moe::app {

// How servers are reached.
struct ServerArgs {
  std::string model;
  std::string api = "auto";  // auto, completions, chat
  std::string api_key_file;
  std::string api_key_env;
  std::string ca_file;
  std::string proxy;
  bool is_insecure = false;
  double ready_timeout_s = 30.0;
  double timeout_s = 600.0;
};

// What is asked for.
struct RequestArgs {
  std::string prompt_tokens = "128";
  std::string output_tokens = "64";
  std::string dataset;
  std::int64_t turns = 0;  // 0: all of the data set
  std::int64_t prefix_tokens = 0;
  std::int64_t num_prefixes = 1;
  std::int64_t vocab_size = 0;  // 0: from the checkpoint, or a bound that most models have
  std::string checkpoint;       // whose tokenizer counts
  std::string scenarios;
  double temperature = 0.0;
  bool keeps_eos = false;
  bool has_no_stream = false;
  std::string extra_body;
};

// How much and when.
struct LoadArgs {
  std::vector<std::int64_t> concurrency;  // closed loop; empty: 1, unless a rate is given
  std::string rates;                      // open loop: numbers with commas
  std::string arrivals = "poisson";
  double gap_cv = 1.0;
  std::string ramp;         // "FROM:TO"
  std::string rate_series;  // "0:5,60:20"
  std::string trace;
  std::string trace_format;
  double rate_scale = 1.0;  // of a trace
  bool is_stress = false;
  bool finds_knee = false;
  std::int64_t requests = 100;
  double duration_s = 0.0;
  double think_time_s = 0.0;
  double drain_s = 60.0;
  std::int64_t warmup = -1;  // -1: as many as run together, at most 16
  std::optional<double> until_ci;
  bool stops_at_saturation = false;
  std::int64_t loops = 1;
  std::int64_t seed = 0;
  std::int64_t configured = 0;  // the load in use, judged by the sweep
  double slo_ttft_s = 0.0;
  double slo_tpot_s = 0.0;
  double slo_e2e_s = 0.0;
  double slo_share = 0.99;
};

struct ServeArgs {
  std::string url;
  ServerArgs server;
  RequestArgs request;
  LoadArgs load;
  double metrics_interval_s = 1.0;
  bool has_no_metrics = false;
  std::string requests_jsonl;
  bool keeps_texts = false;
  bool accepts_client_bound = false;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

void add_server_options(Options& options, ServerArgs& args);
void add_request_options(Options& options, RequestArgs& args);
void add_load_options(Options& options, LoadArgs& args);
void add_serve_options(Options& options, ServeArgs& args);

// Throws Error(kUsage) for what cannot go together.
void check_load(const LoadArgs& args, const RequestArgs& request);

[[nodiscard]] client::ServiceLevel service_level(const LoadArgs& args);

// "10,20.5" -> {10, 20.5}; every number positive. Throws Error(kUsage) naming the option.
[[nodiscard]] std::vector<double> parse_rates(const std::string& text, const std::string& option);

}  // namespace moe::app
