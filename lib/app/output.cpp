#include "lib/app/output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "lib/app/run_tool.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

constexpr const char* kNoFormat = "none";

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::kUsage, message);
}

// "json:out" -> json and "out". A path may hold a colon itself, so only a known format counts.
OutputTarget parse_target(const std::string& text, report::Format default_format) {
  OutputTarget target;
  target.path = text;
  std::optional<report::Format> format;
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) format = report::parse_format(text.substr(0, colon));
  if (format) {
    target.path = text.substr(colon + 1);
  } else {
    format = report::format_of_path(text);
  }
  if (target.path.empty()) fail(fmt::format("--output: expected a file, found \"{}\"", text));
  if (!format && target.path != "-") {
    fail(fmt::format("--output {}: its ending names no format; write FORMAT:FILE with one of {}",
                     text, fmt::join(report::format_names(), ", ")));
  }
  target.format = format.value_or(default_format);
  return target;
}

}  // namespace

void add_output_options(Options& options, OutputOptions& output) {
  options.group("Output");
  std::vector<std::string> formats = report::format_names();
  formats.emplace_back(kNoFormat);
  options.choice("--format", formats, output.format, "What stdout gets");
  options.texts("-o,--output", "FILE", output.outputs,
                "Also write the report to FILE, in the format of its ending (.txt .json .md .csv "
                ".html .xml .prom) or of a prefix such as json:FILE; may be given several times; - "
                "is stdout");
  options.flag("-q,--quiet", output.is_quiet, "No progress and no notes on stderr");
}

void check_writable(const std::string& path, const std::string& option) {
  const std::filesystem::path target(path);
  std::filesystem::path folder = target.parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) {
    fail(fmt::format("{} {}: this is a directory; name a file in it", option, path));
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    fail(fmt::format("{} {}: there is no directory {}; make it first", option, path,
                     folder.string()));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    fail(fmt::format("{} {}: cannot write in {}: {}", option, path, folder.string(),
                     std::strerror(errno)));
  }
}

std::vector<OutputTarget> resolve_outputs(const OutputOptions& output) {
  std::vector<OutputTarget> targets;
  const report::Format format = report::parse_format(output.format).value_or(report::Format::kText);
  for (const std::string& text : output.outputs) {
    targets.push_back(parse_target(text, format));
  }
  const auto is_stdout = [](const OutputTarget& target) { return target.path == "-"; };
  const auto num_stdout = std::count_if(targets.begin(), targets.end(), is_stdout);
  if (num_stdout > 1) fail("--output: stdout takes one document, two were asked for");
  for (const OutputTarget& target : targets) {
    if (!is_stdout(target)) check_writable(target.path, "--output");
  }
  if (num_stdout == 0 && output.format != kNoFormat) targets.push_back({format, "-"});
  // A file that cannot be written after all must not be preceded by a report on stdout.
  std::stable_partition(targets.begin(), targets.end(),
                        [&](const OutputTarget& target) { return !is_stdout(target); });
  return targets;
}

void write_report(const report::Report& report, const std::vector<OutputTarget>& targets) {
  for (const OutputTarget& target : targets) {
    const std::string text = report::write(report, target.format);
    if (target.path == "-") {
      write_stdout(text);
    } else {
      write_file_atomically(target.path, text);
    }
  }
}

}  // namespace moe::app
