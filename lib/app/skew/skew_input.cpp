#include "lib/app/skew/skew_input.hpp"

#include <nlohmann/json.hpp>

#include "lib/app/table_builder.hpp"

namespace moe::app {
namespace {

routing::ArrayLayout layout_of(const std::string& name) {
  if (name == "ids") return routing::ArrayLayout::kTokenIds;
  if (name == "top1") return routing::ArrayLayout::kTopOne;
  if (name == "counts") return routing::ArrayLayout::kCounts;
  if (name == "scores") return routing::ArrayLayout::kLogits;
  return routing::ArrayLayout::kAuto;
}

report::Severity severity_of(routing::Trouble trouble) {
  switch (trouble) {
    case routing::Trouble::kNote:
      return report::Severity::kInfo;
    case routing::Trouble::kWarning:
      return report::Severity::kWarning;
    case routing::Trouble::kError:
      return report::Severity::kError;
  }
  return report::Severity::kError;
}

}  // namespace

void add_input_options(Options& options, InputArgs& args) {
  options.positional("TRACE", args.path,
                     "A trace, dump or count file, a folder of one run's dumps, or FILE#SET");
  add_trace_options(options, args.trace);
  options.texts("--also", "FILE", args.more_paths,
                "A further rank's or layer's file of the same run; may be repeated");
  options.choice("--layout", {"auto", "ids", "top1", "counts", "scores"}, args.layout,
                 "What an array holds: ids [tokens, layers, k], top1 [tokens, layers], counts "
                 "[layers, experts] or scores [tokens, experts]");
}

routing::RoutingInput open_input(const InputArgs& args) {
  std::vector<std::string> paths = {args.path};
  paths.insert(paths.end(), args.more_paths.begin(), args.more_paths.end());
  routing::OpenOptions options = open_options(args.trace);
  options.layout = layout_of(args.layout);
  return routing::open_input(paths, options);
}

json::Json describe_input(const routing::InputInfo& info) {
  json::Json subject;
  subject["kind"] = "trace";
  subject["name"] = info.name.empty() ? "trace" : info.name;
  subject["content_hash"] = info.content_hash;
  subject["content_hash_of"] = "size and up to 64 pages of 4 KiB of every file";
  json::Json& files = subject["files"] = json::Json::array();
  for (const auto& file : info.files) files.push_back(file.string());
  subject["format"] = routing::format_name(info.format);
  subject["model"] = info.model.empty() ? json::Json(nullptr) : json::Json(info.model);
  subject["layers"] = info.layers;
  subject["num_experts"] = info.num_experts;
  subject["top_k"] = info.top_k > 0 ? json::Json(info.top_k) : json::Json(nullptr);
  subject["has_tokens"] = info.has_tokens;
  subject["has_weights"] = info.has_weights;
  subject["has_time"] = info.has_time;
  subject["has_requests"] = info.has_requests;
  subject["ranks"] = info.ranks;
  subject["num_slots"] = info.num_slots > 0 ? json::Json(info.num_slots) : json::Json(nullptr);
  return subject;
}

void add_sanity(const routing::InputCheck& check, ReportSession& session) {
  for (const routing::SanityFinding& finding : check.findings) {
    session.add_finding("input." + finding.code, severity_of(finding.trouble), finding.message,
                        finding.advice, {{"count", finding.count}});
    if (finding.trouble == routing::Trouble::kError) session.invalidate(finding.message);
  }
}

void set_metric(report::Report& report, const std::string& name, const std::string& unit,
                const std::optional<double>& value, const std::string& reason,
                const std::string& how) {
  report.metrics[name] = value.has_value()
                             ? value_metric(report::MetricKind::kReplayed, unit, *value, how)
                             : absent_metric(report::MetricKind::kReplayed, unit, reason, how);
}

}  // namespace moe::app
