#include "lib/report/writers.hpp"

#include <array>
#include <utility>

namespace moe::report {
namespace {

struct FormatEntry {
  const char* name;
  std::string_view ending;
  Format format;
  std::string (*write)(const Report&);
};

constexpr std::array<FormatEntry, 7> kFormats = {{
    {"text", ".txt", Format::kText, write_text},
    {"json", ".json", Format::kJson, write_json},
    {"markdown", ".md", Format::kMarkdown, write_markdown},
    {"csv", ".csv", Format::kCsv, write_csv},
    {"html", ".html", Format::kHtml, write_html},
    {"junit", ".xml", Format::kJunit, write_junit},
    {"prometheus", ".prom", Format::kPrometheus, write_prometheus},
}};

}  // namespace

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const FormatEntry& entry : kFormats) list.emplace_back(entry.name);
    return list;
  }();
  return names;
}

std::optional<Format> parse_format(std::string_view name) {
  for (const FormatEntry& entry : kFormats) {
    if (name == entry.name) return entry.format;
  }
  return std::nullopt;
}

std::optional<Format> format_of_path(std::string_view path) {
  for (const FormatEntry& entry : kFormats) {
    if (path.size() > entry.ending.size() && path.ends_with(entry.ending)) return entry.format;
  }
  return std::nullopt;
}

std::string write(const Report& report, Format format) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.format == format) return entry.write(report);
  }
  return {};
}

}  // namespace moe::report
