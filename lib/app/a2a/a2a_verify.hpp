#pragma once

// How far the constants are from measured times, by GPU and library.

#include <string>

#include "lib/app/report_session.hpp"
#include "lib/topology/time_laws.hpp"

namespace moe::app {

// Fits on three quarters of the points that come with the toolkit and compares with the rest, or,
// with `points`, compares the constants with a file of other points. Fills metrics, tables and
// findings; returns the exit code: 1 when a median is above its limit (5 % all-to-all, 8 % dispatch
// and combine).
[[nodiscard]] int verify_laws(const std::string& scenarios, const std::string& points,
                              ReportSession& session);

}  // namespace moe::app
