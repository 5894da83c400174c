#pragma once

// One input of moe-skew: how it is given, opened, checked and described.

#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/sanity.hpp"

namespace moe::app {

struct InputArgs {
  std::string path;
  std::vector<std::string> more_paths;  // further ranks or layers of the same run
  std::string layout = "auto";
  TraceArgs trace;
};
void add_input_options(Options& options, InputArgs& args);

[[nodiscard]] routing::RoutingInput open_input(const InputArgs& args);

// The report's subject: what was read and what it can support.
[[nodiscard]] json::Json describe_input(const routing::InputInfo& info);

// Every sanity finding, and the report made invalid by an error.
void add_sanity(const routing::InputCheck& check, ReportSession& session);

// A value, or absent for the reason.
void set_metric(report::Report& report, const std::string& name, const std::string& unit,
                const std::optional<double>& value, const std::string& reason,
                const std::string& how);

}  // namespace moe::app
