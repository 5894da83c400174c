#pragma once

// One report from start to end: a command fills it, finish() adds what all reports carry, judges it
// by the checklist, writes it and says how the tool ends.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/output.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/base/clock.hpp"
#include "lib/report/checklist.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// --checklist, --gate, --require.
struct AcceptanceOptions {
  std::string checklist;  // empty: the built-in one
  bool is_gate = false;
  std::string required;  // ids with commas
};
void add_acceptance_options(Options& options, AcceptanceOptions& acceptance);

class ReportSession {
 public:
  // Resolves the outputs and reads the checklist, so that nothing is measured in vain. Throws
  // Error(kUsage), Error(kInput).
  // Without acceptance options no checklist is evaluated.
  ReportSession(const ToolContext& context, const OutputOptions& output,
                const std::optional<AcceptanceOptions>& acceptance = std::nullopt);

  [[nodiscard]] report::Report& report() { return report_; }
  [[nodiscard]] bool is_quiet() const { return is_quiet_; }

  void add_finding(const std::string& code, report::Severity severity, const std::string& message,
                   const std::string& advice, json::Json evidence = nullptr);
  // Marks the report invalid for a reason.
  void invalidate(const std::string& reason);

  // `exit_code` is how the command itself ended. An invalid report turns 0 into 7, a failed
  // required check 0 into 1.
  [[nodiscard]] int finish(int exit_code, std::optional<std::int64_t> seed,
                           const std::optional<std::string>& isa_in_use);

  // For a report that judges others: the acceptance is theirs together, over every item of the
  // checklist. `names` says where each came from. Acceptance options must have been given.
  [[nodiscard]] int finish_merged(std::span<const report::Report> reports,
                                  const std::vector<std::string>& names);

 private:
  // Everything behind the verdict: gate, run block, files.
  [[nodiscard]] int close(int exit_code, std::optional<std::int64_t> seed,
                          const std::optional<std::string>& isa_in_use);

  ToolContext context_;
  bool has_acceptance_ = false;
  report::Checklist checklist_;
  report::GateOptions gate_;
  std::vector<OutputTarget> targets_;
  bool is_quiet_ = false;
  bool is_text_on_stdout_ = false;
  SteadyClock clock_;
  double begin_s_ = 0.0;
  std::int64_t started_at_s_ = 0;  // since 1970
  report::Report report_;
};

}  // namespace moe::app
