#include "lib/app/bench/serve_args.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::app {

void add_server_options(Options& options, ServerArgs& args) {
  options.group("Server");
  options.text("--model", "NAME", args.model, "Model to ask for; default: the first it lists");
  options.choice("--api", {"auto", "completions", "chat"}, args.api,
                 "auto: chat for a data set of conversations, else completions");
  options.text("--api-key-file", "FILE", args.api_key_file,
               "File that holds the key; it never appears in a report");
  options.text("--api-key-env", "NAME", args.api_key_env, "Environment variable that holds it");
  options.text("--ca-file", "FILE", args.ca_file,
               "Certificates to trust, in place of the system's");
  options.flag("--insecure", args.is_insecure, "Do not check the server's certificate");
  options.text("--proxy", "URL", args.proxy,
               "HTTP proxy; http_proxy and no_proxy of the environment are never used");
  options.duration("--ready-timeout", args.ready_timeout_s,
                   "Wait so long for the server to answer");
  options.duration("--timeout", args.timeout_s, "Give one request up after this");
}

void add_request_options(Options& options, RequestArgs& args) {
  options.group("Requests");
  options.text("--prompt-tokens", "LENGTHS", args.prompt_tokens,
               "Length of random prompts: N, MIN-MAX (uniform), MEAN~CV (log-normal), or JSON of "
               "a workload");
  options.text("--output-tokens", "LENGTHS", args.output_tokens, "Tokens to generate, likewise");
  options.text("--dataset", "FILE", args.dataset,
               "ShareGPT JSON, or JSON lines with prompt, messages or turns");
  options.integer("--turns", args.turns, {0, 1000},
                  "User turns of a conversation to play, answers in between", "all");
  options.integer("--shared-prefix", args.prefix_tokens, {0, 1 << 24},
                  "Random prompts begin with so many ids that a group shares");
  options.integer("--prefixes", args.num_prefixes, {1, 1 << 20}, "Number of such groups");
  options.integer("--vocab-size", args.vocab_size, {0, 1 << 24},
                  "Random ids are below this; default: the checkpoint's, else 1000", "auto");
  options.text("--checkpoint", "DIR", args.checkpoint,
               "Checkpoint whose tokenizer counts tokens when the server does not");
  options.text("--scenarios", "DIR", args.scenarios, "Inputs that come with moekit");
  options.real("--temperature", args.temperature, {0.0, 100.0}, "0: greedy");
  options.flag("--keep-eos", args.keeps_eos,
               "Let answers end by themselves; by default ignore_eos fixes their length");
  options.flag("--no-stream", args.has_no_stream, "Ask for plain answers: no first token is seen");
  options.text("--extra-body", "JSON", args.extra_body, "Object whose members join every request");
}

void add_load_options(Options& options, LoadArgs& args) {
  options.group("Load (one of: --concurrency, --rate, --ramp, --rate-series, --trace)");
  options.integers("--concurrency", args.concurrency, {1, 100000},
                   "Closed loop: clients that each wait for their answer; a list is a sweep");
  options.text("--rate", "R,R,...", args.rates, "Open loop: requests a second; a list is a sweep");
  options.choice("--arrivals", {"even", "poisson", "gamma"}, args.arrivals,
                 "How requests of an open loop scatter");
  options.real("--gap-cv", args.gap_cv, {0.01, 100.0},
               "gamma: standard deviation of the gaps over their mean");
  options.text("--ramp", "FROM:TO", args.ramp, "Rate that moves evenly over --duration");
  options.text("--rate-series", "S:R,S:R,...", args.rate_series,
               "Rates at seconds, straight lines between");
  options.text("--trace", "FILE", args.trace,
               "Recorded traffic replayed in time: Azure, BurstGPT, Mooncake, or plain CSV");
  options.text("--trace-format", "NAME", args.trace_format, "Instead of what its beginning shows");
  options.real("--rate-scale", args.rate_scale, {1e-6, 1e6}, "Play a trace so many times as fast");
  options.flag("--stress", args.is_stress,
               "1.5 x the trace's peak: Poisson arrivals at that rate, lengths of the trace");
  options.flag("--knee", args.finds_knee,
               "Search the highest load that keeps the service level, from the first given on");
  options.integer("--requests", args.requests, {1, 100'000'000}, "Measured requests of each point");
  options.duration("--duration", args.duration_s, "Send for so long, whatever their number",
                   "none");
  options.duration("--think-time", args.think_time_s, "Pause of a client after an answer");
  options.duration("--drain", args.drain_s, "Wait so long for answers after the last send");
  options.integer("--warmup", args.warmup, {-1, 1'000'000}, "Requests before the measured ones",
                  "auto");
  options.ratio("--until-ci", args.until_ci,
                "End a point when the interval of median TTFT is this tight");
  options.flag("--stop-at-saturation", args.stops_at_saturation,
               "End an open loop whose queue only grows");
  options.integer("--loops", args.loops, {1, 64}, "Threads, each with an event loop");
  options.integer("--seed", args.seed, {0}, "Of prompts, lengths and arrivals");
  options.integer("--configured", args.configured, {0, 100000},
                  "The --concurrency in use, judged against the sweep (batch.tuned)", "none");
  options.group("Service level");
  options.duration("--slo-ttft", args.slo_ttft_s, "Time to first token to keep", "none");
  options.duration("--slo-tpot", args.slo_tpot_s, "Time per output token to keep", "none");
  options.duration("--slo-e2e", args.slo_e2e_s, "End-to-end latency to keep", "none");
  options.real("--slo-share", args.slo_share, {0.01, 1.0}, "Share of requests that must keep them");
}

void add_serve_options(Options& options, ServeArgs& args) {
  options.positional("URL", args.url,
                     "http://HOST:PORT or https://HOST of an OpenAI-compatible "
                     "server");
  add_load_options(options, args.load);
  add_request_options(options, args.request);
  add_server_options(options, args.server);
  options.group("Measuring");
  options.duration("--metrics-interval", args.metrics_interval_s,
                   "Read the server's /metrics this often");
  options.flag("--no-metrics", args.has_no_metrics, "Leave /metrics alone");
  options.text("--requests-jsonl", "FILE", args.requests_jsonl, "One line of JSON a request");
  options.flag("--keep-texts", args.keeps_texts, "With the generated text and its token ids in it");
  options.flag("--accept-client-bound", args.accepts_client_bound,
               "Report a run that this client limited as valid; the finding stays");
  add_acceptance_options(options, args.acceptance);
  add_output_options(options, args.output);
  options.example("moe-bench serve http://localhost:8000 --concurrency 1,4,16",
                  "latency and throughput at three numbers of clients");
  options.example("moe-bench serve http://localhost:8000 --rate 4 --knee --slo-ttft 500ms",
                  "highest rate whose TTFT stays under half a second");
  options.example("moe-bench serve http://localhost:8000 --trace azure.csv --stress --gate",
                  "exit 1 unless p99 TTFT holds at 1.5 x the trace's peak");
}

void check_load(const LoadArgs& args, const RequestArgs& request) {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kUsage, what); };
  const int num_kinds = (args.concurrency.empty() ? 0 : 1) + (args.rates.empty() ? 0 : 1) +
                        (args.ramp.empty() ? 0 : 1) + (args.rate_series.empty() ? 0 : 1) +
                        (args.trace.empty() ? 0 : 1);
  if (num_kinds > 1) {
    fail("give one of --concurrency, --rate, --ramp, --rate-series and --trace, not several");
  }
  if (!args.ramp.empty() && args.duration_s <= 0.0) fail("--ramp needs --duration");
  if (args.is_stress && args.trace.empty()) fail("--stress needs --trace");
  if (args.finds_knee && !service_level(args).is_set()) {
    fail("--knee needs a service level: --slo-ttft, --slo-tpot or --slo-e2e");
  }
  if (args.finds_knee && num_kinds == 1 && args.concurrency.empty() && args.rates.empty()) {
    fail("--knee needs --rate or --concurrency to start from");
  }
  if (!request.dataset.empty() && !args.trace.empty()) {
    fail("--dataset and --trace both say what to ask; give one");
  }
  if (args.configured > 0 && args.concurrency.empty()) fail("--configured needs --concurrency");
}

client::ServiceLevel service_level(const LoadArgs& args) {
  client::ServiceLevel level;
  if (args.slo_ttft_s > 0.0) level.ttft_s = args.slo_ttft_s;
  if (args.slo_tpot_s > 0.0) level.tpot_s = args.slo_tpot_s;
  if (args.slo_e2e_s > 0.0) level.e2e_s = args.slo_e2e_s;
  level.share = args.slo_share;
  return level;
}

std::vector<double> parse_rates(const std::string& text, const std::string& option) {
  std::vector<double> rates;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    double rate = 0.0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), rate);
    if (error != std::errc{} || end != one.data() + one.size() || !std::isfinite(rate) ||
        rate <= 0.0 || rate > 1e6) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} \"{}\": expected positive numbers with commas, at most 1e6",
                              option, printable(text)));
    }
    rates.push_back(rate);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return rates;
}

}  // namespace moe::app
