#pragma once

// The report's tool and environment objects, from what lib/sysinfo read.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/report.hpp"
#include "lib/sysinfo/accelerators.hpp"
#include "lib/sysinfo/build_info.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::report {

// `name` is the binary: "moe-bench".
[[nodiscard]] json::Json make_tool_json(const std::string& name, const sysinfo::BuildInfo& build,
                                        const std::vector<sysinfo::Backend>& backends);

// `isa_in_use` is the kernel level that ran; nullopt when no kernel did. `variables` are those of
// sysinfo::reportable_variables.
[[nodiscard]] json::Json make_environment_json(
    const sysinfo::HostInfo& host, const sysinfo::GpuPresence& gpu,
    const std::vector<sysinfo::LibraryPresence>& libraries,
    const std::optional<std::string>& isa_in_use,
    const std::map<std::string, std::string>& variables);

// Reads this machine and build; `environment` is the process's block, or null.
[[nodiscard]] json::Json make_tool_json(const std::string& name);
[[nodiscard]] json::Json make_environment_json(const std::optional<std::string>& isa_in_use,
                                               const char* const* environment);

// UTC, to the second: "2026-01-31T23:59:59Z". `unix_time_s` counts from 1970.
[[nodiscard]] std::string format_utc(std::int64_t unix_time_s);

}  // namespace moe::report
