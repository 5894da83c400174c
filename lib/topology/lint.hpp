#pragma once

// What is wrong with a machine as its topology shows it. Each rule has a real case behind it; a
// healthy machine gives no warning and no error.

#include <optional>
#include <string>
#include <vector>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

struct LintRule {
  const char* code;
  const char* meaning;
  const char* real_case;  // where it was seen
};
[[nodiscard]] const std::vector<LintRule>& lint_rules();

// The remarks of the reader, then those of every rule. `host` is this machine, or its hwloc XML,
// for the rules that compare.
[[nodiscard]] std::vector<Remark> lint(const Topology& topology, const LinkCatalog& catalog,
                                       const Topology* host = nullptr);

}  // namespace moe::topology
