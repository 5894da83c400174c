#pragma once

// A topology as metrics, tables and findings of a report.

#include <vector>

#include "lib/app/report_session.hpp"
#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::app {

void add_topology_tables(const topology::Topology& machine, report::Report& report);
void add_topology_metrics(const topology::Topology& machine, ReportSession& session);

// Remarks as findings. `prefix` stands before each message when several machines are looked at.
void add_remarks(const std::vector<topology::Remark>& remarks, const std::string& prefix,
                 ReportSession& session);
[[nodiscard]] std::int64_t count_remarks(const std::vector<topology::Remark>& remarks,
                                         topology::Weight weight);

}  // namespace moe::app
