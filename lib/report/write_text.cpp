#include <algorithm>

#include <fmt/format.h>

#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

std::string padded(const std::string& text, std::size_t width, bool to_the_right) {
  const std::string blanks(width - std::min(width, display_width(text)), ' ');
  return to_the_right ? blanks + text : text + blanks;
}

void trim_end(std::string& line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
}

// Breaks at blanks so that no line is longer than 100 columns where a blank allows it.
std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::string out;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(begin, end - begin);
    const std::size_t width = display_width(word);
    if (column > indent && column + 1 + width > kColumns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width;
    begin = end + 1;
  }
  return out;
}

void append_text_table(std::string& out, const HumanTable& table) {
  if (table.rows.empty()) return;
  std::vector<std::size_t> widths;
  bool has_units = false;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const HumanColumn& column = table.columns[c];
    std::size_t width = std::max(display_width(column.label), display_width(column.unit));
    for (const auto& row : table.rows) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
    has_units = has_units || !column.unit.empty();
  }
  const auto append_line = [&](const auto& cell_of) {
    std::string line = " ";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      line += ' ' + padded(cell_of(c), widths[c], table.columns[c].is_number) + ' ';
    }
    trim_end(line);
    out += line + '\n';
  };
  out += fmt::format("\n{}\n", table.title);
  append_line([&](std::size_t c) { return table.columns[c].label; });
  if (has_units) append_line([&](std::size_t c) { return table.columns[c].unit; });
  append_line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : table.rows) append_line([&](std::size_t c) { return row[c]; });
  if (!table.note.empty()) out += fmt::format("  {}\n", wrapped(table.note, 2));
}

void append_text_findings(std::string& out, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  out += "\nFindings\n";
  for (const Finding& finding : findings) {
    const std::string head = fmt::format("  {:<7}  ", name_of(finding.severity));
    out +=
        head + wrapped(fmt::format("{} [{}]", printable(finding.message), finding.code), 11) + '\n';
    if (!finding.advice.empty()) {
      out += std::string(11, ' ') + wrapped("-> " + printable(finding.advice), 11) + '\n';
    }
  }
}

void append_text_acceptance(std::string& out, const Acceptance& acceptance) {
  if (acceptance.checklist_version.empty()) return;
  out += fmt::format("\nAcceptance (checklist {}): {} ({})\n", acceptance.checklist_version,
                     acceptance.verdict, count_results(acceptance));
  std::size_t width = 0;
  for (const AcceptanceItem& item : acceptance.items) width = std::max(width, item.id.size());
  for (const AcceptanceItem& item : acceptance.items) {
    const std::size_t indent = 20 + width;
    out += fmt::format("  {:<14}  {:<{}}  ", human_result(item.result), item.id, width);
    out += wrapped(printable(item.reason.empty() ? item.rule : item.reason), indent) + '\n';
    if (item.result == ItemResult::kFail && !item.advice.empty()) {
      out += std::string(indent, ' ') + wrapped("-> " + printable(item.advice), indent) + '\n';
    }
  }
}

void append_text_validity(std::string& out, const Validity& validity) {
  out += fmt::format("\n{}{}\n", validity.valid ? "Valid" : "NOT VALID",
                     validity.partial ? ", partial: stopped early" : "");
  for (const std::string& reason : validity.reasons) {
    out += "  " + wrapped(printable(reason), 2) + '\n';
  }
}

}  // namespace

std::string write_text(const Report& report) {
  require_finite(report);
  std::string out;
  for (const std::string& line : headline(report)) out += line + '\n';
  append_text_table(out, layout_distributions(report));
  append_text_table(out, layout_values(report));
  for (const auto& [name, table] : report.tables) {
    if (table.is_detail) {
      out += fmt::format("\n{}: {} rows, in the other formats as \"{}\"\n", printable(table.title),
                         table.rows.size(), name);
    } else {
      append_text_table(out, layout_table(name, table));
    }
  }
  append_text_table(out, layout_absent(report));
  append_text_findings(out, report.findings);
  append_text_acceptance(out, report.acceptance);
  append_text_validity(out, report.validity);
  return out;
}

}  // namespace moe::report
