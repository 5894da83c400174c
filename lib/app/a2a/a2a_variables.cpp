#include "lib/app/a2a/a2a_variables.hpp"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lib/app/a2a/a2a_topo_report.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/sysinfo/accelerators.hpp"
#include "lib/sysinfo/variables.hpp"
#include "lib/topology/nccl_variables.hpp"

namespace moe::app {
namespace {

std::optional<std::int32_t> version_in_use(const std::string& given) {
  if (!given.empty()) {
    const std::optional<std::int32_t> version = topology::parse_nccl_version(given);
    if (!version) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--nccl-version {}: expected one such as 2.28.9", given));
    }
    return version;
  }
  const sysinfo::LibraryPresence nccl = sysinfo::probe_library("libnccl.so.2", "ncclGetVersion");
  return nccl.version ? topology::parse_nccl_version(*nccl.version) : std::nullopt;
}

}  // namespace

std::int64_t add_variable_findings(const std::string& scenarios, const std::string& file,
                                   const std::string& version, ReportSession& session) {
  std::map<std::string, std::string> variables;
  if (file.empty()) {
    variables = sysinfo::reportable_variables(::environ);
  } else {
    const FileMap map(file);
    variables = topology::read_variable_lines(
        {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()}, file);
  }
  std::erase_if(variables, [](const auto& one) { return !one.first.starts_with("NCCL_"); });
  if (variables.empty()) return 0;
  const std::filesystem::path path =
      find_scenario("variables.json", scenarios_dir(scenarios), "nccl", "");
  const topology::NcclVariables known =
      topology::nccl_variables_from_json(json::parse_file(path.string()), path.string());
  const std::vector<topology::Remark> remarks =
      topology::check_nccl_variables(variables, known, version_in_use(version));
  add_remarks(remarks, "", session);
  return count_remarks(remarks, topology::Weight::kWarning);
}

}  // namespace moe::app
