#pragma once

// Thresholds on the bus bandwidth of an all-to-all, size by size. A gate that means nothing is
// refused: one rank, an average over sizes, a size below that of half bandwidth.

#include <optional>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/topology/ceilings.hpp"
#include "lib/topology/results.hpp"

namespace moe::app {

struct GateArgs {
  std::vector<std::string> thresholds;  // "1GiB=300" in GB/s
  std::string baseline;                 // another result file
  double tolerance = 0.1;
  double min_of_bound = 0.0;  // 0: off
};
void add_gate_options(Options& options, GateArgs& args);

// What the gate knows of the machine; nullopt where it is not known.
struct GateContext {
  std::optional<double> ceiling_bytes_per_s;
  std::optional<double> half_bandwidth_bytes;
  // For rows of dispatch and combine.
  std::optional<topology::Cluster> cluster;
};

// What a row of dispatch or combine puts on the wire at most, and what can carry it.
struct DispatchBound {
  double wire_bytes_per_s = 0.0;   // the logical rate less what stays on the rank or in its domain
  double bound_bytes_per_s = 0.0;  // of one GPU's NICs, or of its links into the domain
  std::string carrier;             // "NICs", "links inside the domain"
};
// Of uniform routing: (n-1)/n of the copies leave the rank, (n-G)/n its domain of G. nullopt where
// the number of ranks is not known or one.
[[nodiscard]] std::optional<DispatchBound> dispatch_bound(const topology::DispatchRow& row,
                                                          const topology::Cluster& cluster);

// Judges the out-of-place rows, or the rows of dispatch and combine; adds the table "gate" and
// findings. Returns the exit code: 0, or 1 when a size is below its threshold. Throws Error(kUsage)
// for a gate that means nothing.
[[nodiscard]] int judge_gate(const GateArgs& args, const topology::BenchmarkResults& results,
                             const GateContext& context, ReportSession& session);

}  // namespace moe::app
