#include "tests/lib/report/sample_report.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/report/checklist.hpp"
#include "lib/report/environment.hpp"
#include "lib/report/json_io.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::report::test {
namespace {

sysinfo::HostInfo sample_host() {
  sysinfo::HostInfo host;
  host.host = "node-7";
  host.os = "Debian GNU/Linux 12 (bookworm)";
  host.kernel = "Linux 6.1.0 x86_64";
  host.virtualization = "hypervisor";
  host.load_average = {0.25, 0.5, 1.0};
  host.cpu.model = "Example EPYC 9000";
  host.cpu.vendor = "AuthenticAMD";
  host.cpu.num_sockets = 1;
  host.cpu.num_cores = 2;
  host.cpu.num_threads = 4;
  host.cpu.num_usable_threads = 4;
  host.cpu.smt_active = true;
  host.cpu.caches = {{1, "data", 32768, 2}, {3, "unified", 33554432, 4}};
  host.cpu.isa_flags = {"avx2", "avx512f"};
  host.memory.total_bytes = 25276063744;
  host.memory.available_bytes = 23884132352;
  host.memory.transparent_huge_pages = "madvise";
  return host;
}

// Log-normal times around `median_s`, in whole nanoseconds so that the golden files do not depend
// on the last bit of a logarithm.
std::vector<double> sample_times(std::size_t count, double median_s, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> times(count);
  for (double& time : times) {
    time = std::round(median_s * std::exp(0.12 * rng.next_normal()) * 1e6) / 1e6;
  }
  return times;
}

Metric value_metric(MetricKind kind, const std::string& unit, double value,
                    const std::string& how) {
  Metric metric;
  metric.kind = kind;
  metric.unit = unit;
  metric.value = value;
  metric.how = how;
  return metric;
}

Metric distribution_metric(const std::vector<double>& samples, const std::string& how) {
  Metric metric;
  metric.unit = "s";
  metric.distribution = stats::summarize(samples);
  metric.how = how;
  return metric;
}

void add_metrics(Report& report) {
  auto& metrics = report.metrics;
  metrics["ttft_s"] =
      distribution_metric(sample_times(24, 0.0412, 1), "first token's time minus the send time");
  metrics["itl_s"] = distribution_metric(sample_times(600, 0.00721, 2),
                                         "gap between two tokens of one request, all gaps pooled");
  metrics["output_tokens_per_s"] = value_metric(MetricKind::kMeasured, "tokens/s", 1386.25,
                                                "output tokens over the time of all repetitions");
  metrics["weight_bytes"] =
      value_metric(MetricKind::kMeasured, "bytes", 32324608, "bytes of all weights");
  metrics["read_bytes_per_s"] = value_metric(MetricKind::kMeasured, "bytes/s", 1.874e10,
                                             "weight bytes read in decode over its time");
  metrics["roofline_share_ratio"] =
      value_metric(MetricKind::kModelled, "1", 0.7312, "read_bytes_per_s over the machine's limit");
  metrics["fused_moe_speedup_ratio"] =
      value_metric(MetricKind::kMeasured, "1", 1.1199, "unfused over fused time of a decode step");
  metrics["model_experts_count"] =
      value_metric(MetricKind::kMeasured, "1", 16, "experts of a MoE layer");
  metrics["num_ranks"] = value_metric(MetricKind::kMeasured, "1", 1, "ranks of the run");
  metrics["weight_bits"] = value_metric(MetricKind::kMeasured, "bits", 16, "bits of a weight");
  metrics["spec_speedup_ratio"] =
      value_metric(MetricKind::kMeasured, "1", 1.62, "time without over time with a draft");
  metrics["spec_mismatched_tokens_count"] =
      value_metric(MetricKind::kMeasured, "1", 0, "tokens that differ from greedy decoding");
  metrics["gpu_price_per_hour"] = value_metric(MetricKind::kAssumed, "USD", 2.5, "given");
  metrics["energy_j"].unit = "J";
  metrics["energy_j"].absent_reason = "no energy counter can be read on this machine";
  report.highlights = {"ttft_s", "itl_s", "output_tokens_per_s", "read_bytes_per_s", "energy_j"};
}

void add_tables(Report& report) {
  Table& sweep = report.tables["sweep"];
  sweep.title = "Sweep";
  sweep.columns = {{"batch", "1"}, {"prompt_tokens", "tokens"},
                   {"status", ""}, {"ttft_s", "s"},
                   {"itl_s", "s"}, {"output_tokens_per_s", "tokens/s"}};
  for (const std::int64_t prompt : {128, 512}) {
    for (const std::int64_t batch : {1, 4, 16}) {
      const auto tokens = static_cast<double>(batch * prompt);
      const double itl_s = 0.0061 + 4e-4 * static_cast<double>(batch) + tokens * 5e-7;
      sweep.rows.push_back({batch, prompt, std::string("ok"), 0.004 + tokens * 3.1e-5, itl_s,
                            static_cast<double>(batch) / itl_s});
    }
  }
  sweep.rows.push_back({std::int64_t{64}, std::int64_t{512}, std::string("skipped: out of memory"),
                        std::monostate{}, std::monostate{}, std::monostate{}});
  Table& stages = report.tables["stages"];
  stages.title = "Time by stage";
  stages.columns = {
      {"phase", ""}, {"attention_s", "s"}, {"router_s", "s"}, {"experts_s", "s"}, {"head_s", "s"}};
  stages.rows = {{std::string("prefill"), 0.0101, 0.0009, 0.0254, 0.0012},
                 {std::string("decode"), 0.0008, 0.0002, 0.0051, 0.0011}};
  Table& load = report.tables["expert_load"];
  load.title = "Tokens by layer and expert";
  load.is_detail = true;
  load.columns = {{"layer", "1"}, {"expert", "1"}, {"tokens", "tokens"}};
  Rng rng(9);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    for (std::int64_t expert = 0; expert < 16; ++expert) {
      load.rows.push_back(
          {layer, expert, static_cast<std::int64_t>(rng.next_below(200) * rng.next_below(12))});
    }
  }
  report.charts = {{"Output rate over batch",
                    ChartKind::kLine,
                    "sweep",
                    "batch",
                    {"output_tokens_per_s"},
                    "prompt_tokens"},
                   {"Latency over batch",
                    ChartKind::kLine,
                    "sweep",
                    "batch",
                    {"ttft_s", "itl_s"},
                    "prompt_tokens"},
                   {"Time by stage",
                    ChartKind::kStacked,
                    "stages",
                    "phase",
                    {"attention_s", "router_s", "experts_s", "head_s"},
                    ""},
                   {"Tokens by layer and expert",
                    ChartKind::kHeatmap,
                    "expert_load",
                    "expert",
                    {"layer", "tokens"},
                    ""}};
}

}  // namespace

Report sample_report() {
  Report report;
  report.tool = make_tool_json(
      "moe-bench", {"0.1.0", "0123abc", "Release", "GNU 12.2.0"},
      {{"cpu", true, true, ""}, {"cuda", false, false, "not in this build: no CUDA compiler"}});
  report.run = {{"started_at", "2026-01-31T12:00:00Z"},
                {"duration_s", 12.5},
                {"argv", {"moe-bench", "run", "tinymoe-qwen3", "--batch", "1,4,16"}},
                {"seed", 0},
                {"exit_code", 0}};
  report.environment = make_environment_json(
      sample_host(), {std::nullopt, {}, "no NVIDIA driver is loaded"},
      {{"libcuda.so.1", false, std::nullopt, "cannot open shared object file"}}, "avx2",
      {{"OMP_NUM_THREADS", "4"}});
  report.subject = {{"kind", "checkpoint"},
                    {"name", "tinymoe-qwen3"},
                    {"content_hash", "sha256:00ff00ff"},
                    {"family", "qwen3_moe"}};
  report.settings = {{"batch", {1, 4, 16}}, {"threads", 4}, {"prompts", "text"}};
  add_metrics(report);
  add_tables(report);
  report.findings = {
      {"samples.too_few",
       Severity::kWarning,
       "24 samples of ttft_s: p90 and above are not given",
       "raise --repeat to 44 for p90, to 459 for p99",
       {{"count", 24}}},
      {"host.smt_active", Severity::kInfo, "two threads share each core", "", nullptr}};
  report.acceptance = evaluate(report, default_checklist());
  return report;
}

Report hostile_report() {
  const std::string evil = "</script><script>alert(1)</script>&\"'`|,\n\x1b[31m\xe2\x80\xae\xff{}";
  Report report = sample_report();
  report.subject["name"] = evil;
  report.run["argv"] = json::Json::array({evil});
  report.settings["note"] = evil;
  report.metrics["evil"] = value_metric(MetricKind::kMeasured, "1", 1.0, evil);
  report.tables["evil"] = {evil, {{"text", ""}, {"number", "1"}}, {{evil, 1.0}}, false};
  report.charts.push_back({evil, ChartKind::kBar, "evil", "text", {"number"}, ""});
  report.findings.push_back({"evil", Severity::kError, evil, evil, {{"text", evil}}});
  report.validity = {false, true, {evil}};
  report.acceptance.items.push_back({"evil", evil, ItemResult::kFail, 1.0, "1", evil, evil, evil});
  return report;
}

std::string schema_violations(const Report& report) {
  return json::describe(check_report(to_json(report)));
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path =
      std::filesystem::path(MOE_SOURCE_DIR) / "tests/golden/report" / name;
  if (std::getenv("MOE_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    moe::test::write_file(path, text);
  }
  ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing; set MOE_UPDATE_GOLDEN=1";
  EXPECT_EQ(text, moe::test::read_file(path)) << "differs from " << path;
}

}  // namespace moe::report::test
