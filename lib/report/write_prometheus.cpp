#include <algorithm>
#include <map>
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
std::string family_name(const std::string& name, const std::string& unit) {
  std::string out = "moekit_" + name;
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

// The parts of a name after its first point say where in a sweep: "batch_4" -> batch="4", a part
// without a number -> point="part".
Labels labels_of_parts(const std::string& parts) {
  Labels labels;
  for (std::size_t begin = 0; begin < parts.size();) {
    const std::size_t end = std::min(parts.find('.', begin), parts.size());
    const std::string part = parts.substr(begin, end - begin);
    const std::size_t bar = part.rfind('_');
    const bool has_number = bar != std::string::npos && bar > 0 && bar + 1 < part.size() &&
                            part.find_first_not_of("0123456789", bar + 1) == std::string::npos;
    Label label{has_number ? part.substr(0, bar) : "point",
                has_number ? part.substr(bar + 1) : part};
    const bool is_taken = label.name == "tool" || label.name == "subject" || label.name == "kind" ||
                          label.name == "statistic" ||
                          std::any_of(labels.begin(), labels.end(),
                                      [&](const Label& other) { return other.name == label.name; });
    if (is_taken || (label.name[0] >= '0' && label.name[0] <= '9')) label.name.insert(0, "point_");
    labels.push_back(std::move(label));
    begin = end + 1;
  }
  return labels;
}

// Families in the order of their first mention, each with its samples together, as the format asks.
class Exposition {
 public:
  explicit Exposition(Labels common) : common_(std::move(common)) {}

  // `key` tells families apart whose names would be equal.
  std::size_t family(const std::string& key, const std::string& name, const std::string& help) {
    const auto [found, is_new] = by_key_.emplace(key, families_.size());
    if (is_new) {
      std::string unique = name;
      while (!names_.insert(unique).second) unique += '_';
      families_.push_back({unique, help, ""});
    }
    return found->second;
  }

  void sample(std::size_t family, const Labels& labels, double value) {
    std::string list;
    for (const Labels* part : {static_cast<const Labels*>(&common_), &labels}) {
      for (const Label& label : *part) {
        list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label.name,
                            escaped_label(printable(label.value)));
      }
    }
    Family& of = families_[family];
    of.samples += fmt::format("{}{{{}}} {}\n", of.name, list, value);
  }

  [[nodiscard]] std::string text() const {
    std::string out;
    for (const Family& family : families_) {
      out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{2}", family.name,
                         escaped_help(family.help), family.samples);
    }
    return out;
  }

 private:
  struct Family {
    std::string name;
    std::string help;
    std::string samples;
  };

  Labels common_;
  std::vector<Family> families_;
  std::map<std::string, std::size_t> by_key_;
  std::set<std::string> names_;
};

void append_metric(Exposition& out, const std::string& name, const Metric& metric) {
  if (!metric.value && !metric.distribution) return;
  const std::size_t point = std::min(name.find('.'), name.size());
  const std::string base = name.substr(0, point);
  const std::string full = family_name(base, metric.unit);
  const std::string help = metric.how.empty() ? human_label(base, metric.unit) : metric.how;
  Labels labels = {{"kind", name_of(metric.kind)}};
  const Labels parts = labels_of_parts(name.substr(std::min(point + 1, name.size())));
  labels.insert(labels.end(), parts.begin(), parts.end());
  const std::size_t family = out.family(base + '/' + metric.unit, full, help);
  if (metric.value) {
    out.sample(family, labels, *metric.value);
    return;
  }
  const stats::Distribution& d = *metric.distribution;
  const std::vector<std::pair<const char*, std::optional<double>>> figures = {
      {"mean", d.mean},     {"stdev", d.stdev},   {"mad", d.mad},
      {"min", d.min},       {"p50", d.p50.value}, {"p90", d.p90.value},
      {"p95", d.p95.value}, {"p99", d.p99.value}, {"max", d.max}};
  for (const auto& [statistic, value] : figures) {
    if (!value) continue;
    Labels with = labels;
    with.push_back({"statistic", statistic});
    out.sample(family, with, *value);
  }
  const std::size_t samples = out.family(base + '/' + metric.unit + "/samples", full + "_samples",
                                         "Number of samples of " + full);
  out.sample(samples, labels, static_cast<double>(d.count));
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
    const std::size_t family = out.family(
        "/checklist", "moekit_checklist_item",
        "1 for the result that the item has: pass, fail, not_measured or not_applicable");
    for (const AcceptanceItem& item : report.acceptance.items) {
      out.sample(family, {{"id", item.id}, {"result", name_of(item.result)}}, 1.0);
    }
  }
  const std::size_t family = out.family("/valid", "moekit_run_valid",
                                        "1 when the run measured what it was meant to, else 0");
  out.sample(family, {}, report.validity.valid ? 1.0 : 0.0);
  return out.text();
}

}  // namespace moe::report
