#include <fmt/format.h>

#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

// Text that Markdown (and the HTML it passes through) must not read as markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\\':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '|':
      case '#':
        out += '\\';
        out += c;
        break;
      default:
        out += c;
    }
  }
  return out;
}

void append_markdown_table(std::string& out, const HumanTable& table) {
  if (table.rows.empty()) return;
  out += fmt::format("\n## {}\n\n|", escaped(table.title));
  for (const HumanColumn& column : table.columns) {
    out += fmt::format(" {}{} |", escaped(column.label),
                       column.unit.empty() ? "" : " (" + escaped(column.unit) + ")");
  }
  out += "\n|";
  for (const HumanColumn& column : table.columns) out += column.is_number ? " ---: |" : " --- |";
  out += '\n';
  for (const auto& row : table.rows) {
    out += '|';
    for (const std::string& cell : row) out += ' ' + escaped(cell) + " |";
    out += '\n';
  }
  if (!table.note.empty()) out += fmt::format("\n{}\n", escaped(table.note));
}

void append_markdown_findings(std::string& out, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  out += "\n## Findings\n\n";
  for (const Finding& finding : findings) {
    out += fmt::format("- **{}** `{}`: {}", name_of(finding.severity), finding.code,
                       escaped(finding.message));
    if (!finding.advice.empty()) out += fmt::format(" *{}*", escaped(finding.advice));
    out += '\n';
  }
}

void append_markdown_acceptance(std::string& out, const Acceptance& acceptance) {
  if (acceptance.checklist_version.empty()) return;
  out += fmt::format("\n## Acceptance: {}\n\nChecklist {}: {}.\n\n", acceptance.verdict,
                     escaped(acceptance.checklist_version), count_results(acceptance));
  out += "| item | result | rule | what was seen |\n| --- | --- | --- | --- |\n";
  for (const AcceptanceItem& item : acceptance.items) {
    std::string seen = escaped(item.reason);
    if (item.result == ItemResult::kFail && !item.advice.empty()) {
      seen += fmt::format(" *{}*", escaped(item.advice));
    }
    out += fmt::format("| `{}` {} | {} | {} | {} |\n", item.id, escaped(item.title),
                       item.result == ItemResult::kFail ? "**fail**" : human_result(item.result),
                       escaped(item.rule), seen);
  }
}

void append_markdown_validity(std::string& out, const Validity& validity) {
  out += fmt::format("\n## Validity\n\n{}{}\n", validity.valid ? "Valid" : "**Not valid**",
                     validity.partial ? ", partial: stopped early" : "");
  if (!validity.reasons.empty()) out += '\n';
  for (const std::string& reason : validity.reasons) out += fmt::format("- {}\n", escaped(reason));
}

}  // namespace

std::string write_markdown(const Report& report) {
  require_finite(report);
  std::string out;
  const std::vector<std::string> lines = headline(report);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += i == 0 ? fmt::format("# {}\n", escaped(lines[i]))
                  : fmt::format("\n{}\n", escaped(lines[i]));
  }
  append_markdown_table(out, layout_distributions(report));
  append_markdown_table(out, layout_values(report));
  for (const auto& [name, table] : report.tables) {
    if (table.is_detail) {
      out += fmt::format("\n## {}\n\n{} rows, in the other formats as `{}`.\n",
                         escaped(table.title), table.rows.size(), name);
    } else {
      append_markdown_table(out, layout_table(name, table));
    }
  }
  append_markdown_table(out, layout_absent(report));
  append_markdown_findings(out, report.findings);
  append_markdown_acceptance(out, report.acceptance);
  append_markdown_validity(out, report.validity);
  return out;
}

}  // namespace moe::report
