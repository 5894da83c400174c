#pragma once

// Environment variables of NCCL that are misspelt, unknown to the version in use, without effect on
// an all-to-all, or a leftover that slows it down. The names come from data
// (scenarios/nccl/variables.json); nothing here reads an environment.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lib/json/read.hpp"
#include "lib/topology/graph.hpp"

namespace moe::topology {

// "2.28.9" -> 22809, as NCCL writes it; "2.18" -> 21800. nullopt for another text.
[[nodiscard]] std::optional<std::int32_t> parse_nccl_version(std::string_view text);

struct NcclVariable {
  std::string name;
  std::optional<std::int32_t> since;  // versions as numbers
  std::optional<std::int32_t> deprecated_in;
  std::optional<std::int32_t> removed_in;
  std::string renamed_to;
  bool has_no_effect = false;           // on an all-to-all
  std::vector<std::string> slows_when;  // values
  std::vector<std::string> values;      // all that make sense; empty: not listed
  std::string why;
};

struct NcclVariables {
  std::map<std::string, NcclVariable> known;
  std::map<std::string, std::string> misspellings;    // seen in public -> meant
  std::map<std::string, std::string> other_prefixes;  // prefix -> whose variables they are
  std::string last_version;
};

// Throws Error(kInput) with the JSON path of what is wrong.
[[nodiscard]] NcclVariables nccl_variables_from_json(const json::Json& document,
                                                     const std::string& where);

// Remarks on the variables that begin with NCCL_, in the order of their names. `version` is the
// NCCL that is used, as a number; nullopt: not known, versions are not looked at.
[[nodiscard]] std::vector<Remark> check_nccl_variables(
    const std::map<std::string, std::string>& environment, const NcclVariables& variables,
    std::optional<std::int32_t> version);

// Lines NAME=value, as `env` prints them or as in nccl.conf; lines that begin with # are comments,
// others without = are passed over. Throws Error(kInput) above 4 MiB.
[[nodiscard]] std::map<std::string, std::string> read_variable_lines(std::string_view text,
                                                                     const std::string& where);

}  // namespace moe::topology
