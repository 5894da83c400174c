#include <algorithm>

#include <fmt/format.h>

#include "lib/app/cli.hpp"

namespace moe::app {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kIndent = 30;

// `left` in a column, `text` wrapped beside it; a left side that is too long has its own line.
std::string two_columns(const std::string& left, const std::string& text) {
  std::string out = "  " + left;
  if (left.size() + 4 > kIndent) {
    out += '\n' + std::string(kIndent, ' ');
  } else {
    out += std::string(kIndent - left.size() - 2, ' ');
  }
  std::size_t column = kIndent;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t length = end - begin;
    if (column > kIndent && column + 1 + length > kColumns) {
      out += '\n' + std::string(kIndent, ' ');
      column = kIndent;
    }
    if (column > kIndent) {
      out += ' ';
      ++column;
    }
    out += text.substr(begin, length);
    column += length;
    begin = end + 1;
  }
  return out + '\n';
}

}  // namespace

std::string command_help(const std::string& tool, const std::string& command,
                         const std::string& summary, const Options& options) {
  std::string usage = tool + ' ' + command;
  for (const PositionalHelp& positional : options.positional_help()) usage += ' ' + positional.name;
  std::string out = fmt::format("{}\n\nUsage: {} [options]\n", summary, usage);
  if (!options.positional_help().empty()) out += '\n';
  for (const PositionalHelp& positional : options.positional_help()) {
    out += two_columns(positional.name, positional.help);
  }
  std::string group;
  for (const OptionHelp& option : options.option_help()) {
    if (option.group != group) {
      group = option.group;
      out += fmt::format("\n{}:\n", group);
    }
    const std::string left =
        option.value_name.empty() ? option.names : option.names + ' ' + option.value_name;
    const std::string shown_default =
        option.default_value.empty() ? "" : fmt::format(" [default: {}]", option.default_value);
    out += two_columns(left, option.help + shown_default);
  }
  out += two_columns("-h, --help", "Print this help and end");
  if (!options.examples().empty()) out += "\nExamples:\n";
  for (const PositionalHelp& example : options.examples()) {
    out += fmt::format("  {}\n      {}\n", example.name, example.help);
  }
  return out;
}

}  // namespace moe::app
