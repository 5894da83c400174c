#include <set>
#include <utility>

#include <fmt/format.h>

#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

struct Label {
  std::string name;
  std::string value;
};
using Labels = std::vector<Label>;

std::string escaped_label(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '"') {
      out += "\\\"";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string escaped_help(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// "ttft_s" in "s" -> "moekit_ttft_seconds": Prometheus spells base units out as the last word.
std::string metric_name(const std::string& name, const std::string& unit) {
  std::string out = "moekit_";
  for (const char c : name) out += c == '.' ? '_' : c;
  if (unit == "s" && out.ends_with("_s")) {
    out.replace(out.size() - 1, 1, "seconds");
  } else if (out.ends_with("_per_s")) {
    out.replace(out.size() - 1, 1, "second");
  } else if (unit == "s") {
    out += "_seconds";
  } else if (unit == "bytes" && !out.ends_with("_bytes")) {
    out += "_bytes";
  }
  return out;
}

class Exposition {
 public:
  explicit Exposition(Labels common) : common_(std::move(common)) {}

  // A name of its own for every family: "a.b_s" and "a_b_s" would both be moekit_a_b_seconds.
  std::string unique(std::string name) {
    while (!names_.insert(name).second) name += '_';
    return name;
  }

  void family(const std::string& name, const std::string& help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, escaped_help(help), name);
  }

  void sample(const std::string& name, const Labels& labels, double value) {
    std::string list;
    for (const Labels* part : {static_cast<const Labels*>(&common_), &labels}) {
      for (const Label& label : *part) {
        list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label.name,
                            escaped_label(printable(label.value)));
      }
    }
    out_ += fmt::format("{}{{{}}} {}\n", name, list, value);
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  Labels common_;
  std::set<std::string> names_;
  std::string out_;
};

void append_metric(Exposition& out, const std::string& name, const Metric& metric) {
  const std::string full = out.unique(metric_name(name, metric.unit));
  const std::string help = metric.how.empty() ? human_label(name, metric.unit) : metric.how;
  const Label kind{"kind", name_of(metric.kind)};
  if (metric.value) {
    out.family(full, help);
    out.sample(full, {kind}, *metric.value);
    return;
  }
  if (!metric.distribution) return;
  const stats::Distribution& d = *metric.distribution;
  out.family(full, help);
  const std::vector<std::pair<const char*, std::optional<double>>> figures = {
      {"mean", d.mean},     {"stdev", d.stdev},   {"mad", d.mad},
      {"min", d.min},       {"p50", d.p50.value}, {"p90", d.p90.value},
      {"p95", d.p95.value}, {"p99", d.p99.value}, {"max", d.max}};
  for (const auto& [statistic, value] : figures) {
    if (value) out.sample(full, {kind, {"statistic", statistic}}, *value);
  }
  const std::string count = out.unique(full + "_samples");
  out.family(count, "Number of samples of " + full);
  out.sample(count, {kind}, static_cast<double>(d.count));
}

Labels common_labels(const Report& report) {
  Labels labels;
  const auto add = [&labels](const char* label, const json::Json& object, const char* key) {
    if (object.is_object() && object.contains(key) && object[key].is_string()) {
      labels.push_back({label, object[key].get<std::string>()});
    }
  };
  add("tool", report.tool, "name");
  add("subject", report.subject, "name");
  return labels;
}

}  // namespace

std::string write_prometheus(const Report& report) {
  require_finite(report);
  Exposition out(common_labels(report));
  for (const auto& [name, metric] : report.metrics) append_metric(out, name, metric);
  if (!report.acceptance.items.empty()) {
    out.family("moekit_checklist_item",
               "1 for the result that the item has: pass, fail, not_measured or not_applicable");
    for (const AcceptanceItem& item : report.acceptance.items) {
      out.sample("moekit_checklist_item", {{"id", item.id}, {"result", name_of(item.result)}}, 1.0);
    }
  }
  out.family("moekit_run_valid", "1 when the run measured what it was meant to, else 0");
  out.sample("moekit_run_valid", {}, report.validity.valid ? 1.0 : 0.0);
  return out.take();
}

}  // namespace moe::report
