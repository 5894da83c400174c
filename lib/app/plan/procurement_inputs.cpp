// Parts 1 to 3 and 11: what was examined, the traffic, the service level, how to make it again.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/app/plan/figure_table.hpp"
#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/report/human.hpp"

namespace moe::app::procurement {

using report::MetricKind;

void add_header(const SizeInputs& inputs, report::Report& report) {
  const model::Architecture& a = inputs.model.architecture;
  const model::ParameterSummary parameters = model::count_parameters(a);
  FigureTable table(report, "part01_header", "1. What was examined");
  table.add_text("model", inputs.model.name, "given", inputs.model.path.string());
  table.add_text("model config", inputs.model.content_hash, "", "hash of the file's bytes");
  table.add("parameters", "parameters_total", MetricKind::kModelled, "1",
            static_cast<double>(parameters.total), "sum over all weights of the config");
  table.add("active parameters", "parameters_active", MetricKind::kModelled, "1",
            static_cast<double>(parameters.active_with_embeddings),
            "what one token meets, embedding and head included");
  table.add("weights", "weight_bytes", MetricKind::kModelled, "bytes",
            static_cast<double>(a.weight_bytes()), inputs.model.byte_source);
  table.add_text("hardware file", inputs.hardware.content_hash, "", "hash of the file's bytes");
  if (!inputs.scenario.path.empty()) {
    table.add_text("scenario", inputs.scenario.content_hash, "given", inputs.scenario.path);
  }
  if (!inputs.scenario.source.empty()) {
    table.add_text("question from", inputs.scenario.source, "given", "the scenario file");
  }
  for (const std::string& line : inputs.evidence) {
    table.add_text("evidence", line, "measured", "report of another tool");
  }
  table.add_text("random numbers", "none", "", "nothing here is sampled");
  table.finish();
}

void add_workload(const SizeInputs& inputs, report::Report& report) {
  const workload::Workload& w = inputs.scenario.workload;
  const planner::Demand& d = inputs.demand;
  const MetricKind kind = w.trace ? MetricKind::kMeasured : MetricKind::kAssumed;
  FigureTable table(report, "part02_workload", "2. Workload");
  const auto lengths = [&](const char* title, const char* metric,
                           const workload::LengthDistribution& of) {
    table.add(fmt::format("{}, mean", title), fmt::format("{}_mean", metric), kind, "tokens",
              of.mean(), fmt::format("{} ({})", of.description(), w.lengths_source));
    table.add(fmt::format("{}, p99", title), fmt::format("{}_p99", metric), kind, "tokens",
              static_cast<double>(of.quantile(0.99)), "of the same");
  };
  lengths("prompt", "input_tokens", w.input_tokens);
  lengths("answer", "output_tokens", w.output_tokens);
  table.add("prefix cache hits", "prefix_hit_ratio", kind, "1", w.prefix_hit_ratio,
            w.prefix_source);
  if (w.concurrency) {
    table.add("clients", "num_clients", MetricKind::kAssumed, "1",
              static_cast<double>(*w.concurrency), "each waits for its answer");
    table.add("requests a second", "requests_per_s_peak", MetricKind::kModelled, "requests/s",
              d.peak_requests_per_s, "clients over the time of a request at the service level");
  } else {
    table.add("requests a second, mean", "requests_per_s_mean", kind, "requests/s",
              d.mean_requests_per_s, w.arrivals_source);
    table.add("requests a second, busiest time", "requests_per_s_peak", kind, "requests/s",
              d.peak_requests_per_s, w.arrivals_source);
    table.add("spread of the gaps", "gap_cv", kind, "1", d.gap_cv,
              fmt::format("{} arrivals; 1 is Poisson", workload::name_of(w.process.kind)));
  }
  const double request_s =
      inputs.scenario.ttft_s + (d.shape.output_tokens - 1.0) * inputs.scenario.tpot_s;
  table.add("requests in flight at the busiest time", "concurrency_at_slo", MetricKind::kModelled,
            "1", d.peak_requests_per_s * request_s,
            "Little's law with the times of the service level: an upper end");
  table.add(
      "tokens whose cache is planned for", "request_tokens", MetricKind::kAssumed, "tokens",
      static_cast<double>(d.request_tokens),
      fmt::format("p{:g} of prompt plus p{:g} of answer", 100.0 * inputs.scenario.cache_percentile,
                  100.0 * inputs.scenario.cache_percentile));
  if (w.trace) {
    const workload::TraceProfile& t = *w.trace;
    table.add("requests in the trace", "trace_requests_count", MetricKind::kMeasured, "1",
              static_cast<double>(t.info.requests),
              fmt::format("{} failed and {} incomplete left out, {} out of order", t.info.failed,
                          t.info.incomplete, t.info.out_of_order));
  }
  table.finish();
}

void add_service_level(const SizeInputs& inputs, report::Report& report) {
  const Scenario& s = inputs.scenario;
  FigureTable table(report, "part03_service_level", "3. Service level");
  const auto source = [&](const char* key) {
    return s.given.count(key) != 0 ? "given" : "default";
  };
  table.add(s.is_ttft_p99 ? "TTFT, p99" : "TTFT, mean", "slo_ttft_s", MetricKind::kAssumed, "s",
            s.ttft_s, source("slo.ttft_s"));
  table.add("TPOT (ITL), mean of a request", "slo_tpot_s", MetricKind::kAssumed, "s", s.tpot_s,
            source("slo.tpot_s"));
  table.add("availability", "slo_availability_ratio", MetricKind::kAssumed, "1",
            s.availability_ratio, source("slo.availability_ratio"));
  table.add_text("goodput", "requests a second that meet both", "definition",
                 "TPOT excludes the first token");
  table.finish();
}

void add_reproduction(const SizeInputs& inputs, const std::string& command,
                      report::Report& report) {
  report::Table assumptions = make_table(
      "10. Assumptions", {{"assumption", ""}, {"value", ""}, {"given", ""}, {"source", ""}});
  for (const Assumption& one : list_assumptions(inputs.scenario)) {
    assumptions.rows.push_back(
        {one.name, one.value, std::string(one.is_given ? "given" : "default"), one.source});
  }
  report.tables["part10_assumptions"] = assumptions;
  report::Table table = make_table("11. How to make this report again", {{"what", ""}, {"", ""}});
  table.columns[1].name = "value";
  table.rows.push_back({std::string("command"), command});
  table.rows.push_back({std::string("machine-readable"),
                        std::string("the same command with --format json; base units, the unit in "
                                    "the key, reports/schema/report.schema.json")});
  table.rows.push_back({std::string("checklist"),
                        std::string("moe-plan accept merges this report's JSON with those of "
                                    "moe-bench, moe-a2a and moe-skew")});
  report.tables["part11_reproduction"] = table;
}

}  // namespace moe::app::procurement
