#pragma once

// Where a report goes: one format on stdout, any number of files, each in the format that its name
// or a prefix says. Checked before any work starts, so that an hour of measuring is not lost to a
// path that cannot be written.

#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/report/writers.hpp"

namespace moe::app {

struct OutputOptions {
  std::string format = "text";
  std::vector<std::string> outputs;
  bool is_quiet = false;
};

struct OutputTarget {
  report::Format format = report::Format::kText;
  std::string path;  // "-": stdout
};

// --format, --output, --quiet, under the title "Output".
void add_output_options(Options& options, OutputOptions& output);

// "json:out.txt", "out.html", "-". Without --output - stdout gets --format; "none" keeps it empty.
// Throws Error(kUsage) for an unknown format, two documents on stdout, or a path that cannot be
// written.
[[nodiscard]] std::vector<OutputTarget> resolve_outputs(const OutputOptions& output);

// Throws Error(kUsage) when a file could not be made at the path: `option` names it.
void check_writable(const std::string& path, const std::string& option);

// Files first, stdout last. Throws Error(kRuntime).
void write_report(const report::Report& report, const std::vector<OutputTarget>& targets);

}  // namespace moe::app
