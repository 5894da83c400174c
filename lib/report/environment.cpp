#include "lib/report/environment.hpp"

#include <chrono>

#include <fmt/format.h>

#include "lib/sysinfo/variables.hpp"

namespace moe::report {
namespace {

using json::Json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json cpu_json(const sysinfo::CpuInfo& cpu, const std::optional<std::string>& isa_in_use) {
  Json out = Json::object();
  out["model"] = or_null(cpu.model);
  out["vendor"] = or_null(cpu.vendor);
  out["num_sockets"] = or_null(cpu.num_sockets);
  out["num_cores"] = or_null(cpu.num_cores);
  out["num_threads"] = or_null(cpu.num_threads);
  out["num_usable_threads"] = or_null(cpu.num_usable_threads);
  out["quota_cores"] = or_null(cpu.quota_cores);
  out["smt_active"] = or_null(cpu.smt_active);
  out["governor"] = or_null(cpu.governor);
  Json caches = Json::array();
  for (const sysinfo::CpuCache& cache : cpu.caches) {
    caches.push_back(Json{{"level", cache.level},
                          {"kind", cache.kind},
                          {"size_bytes", cache.size_bytes},
                          {"shared_by_threads", or_null(cache.shared_by_threads)}});
  }
  out["caches"] = std::move(caches);
  out["isa_flags"] = cpu.isa_flags;
  out["isa_in_use"] = or_null(isa_in_use);
  return out;
}

Json memory_json(const sysinfo::MemoryInfo& memory) {
  Json out = Json::object();
  out["total_bytes"] = or_null(memory.total_bytes);
  out["available_bytes"] = or_null(memory.available_bytes);
  out["limit_bytes"] = or_null(memory.limit_bytes);
  out["huge_page_bytes"] = or_null(memory.huge_page_bytes);
  out["huge_pages_total"] = or_null(memory.huge_pages_total);
  out["transparent_huge_pages"] = or_null(memory.transparent_huge_pages);
  return out;
}

}  // namespace

Json make_tool_json(const std::string& name, const sysinfo::BuildInfo& build,
                    const std::vector<sysinfo::Backend>& backends) {
  Json out = Json::object();
  out["name"] = name;
  out["version"] = build.version;
  out["commit"] = text_or_null(build.commit);
  out["build_type"] = build.build_type;
  out["compiler"] = build.compiler;
  Json list = Json::array();
  for (const sysinfo::Backend& backend : backends) {
    list.push_back(Json{{"name", backend.name},
                        {"compiled_in", backend.is_compiled_in},
                        {"available", backend.is_available},
                        {"reason", text_or_null(backend.reason)}});
  }
  out["backends"] = std::move(list);
  return out;
}

Json make_environment_json(const sysinfo::HostInfo& host, const sysinfo::GpuPresence& gpu,
                           const std::vector<sysinfo::LibraryPresence>& libraries,
                           const std::optional<std::string>& isa_in_use,
                           const std::map<std::string, std::string>& variables) {
  Json out = Json::object();
  out["host"] = host.host;
  out["os"] = or_null(host.os);
  out["kernel"] = host.kernel;
  out["virtualization"] = or_null(host.virtualization);
  out["cpu"] = cpu_json(host.cpu, isa_in_use);
  out["memory"] = memory_json(host.memory);
  out["load_average"] = or_null(host.load_average);
  out["gpu"] = Json{{"driver_version", or_null(gpu.driver_version)},
                    {"device_nodes", gpu.device_nodes},
                    {"reason", text_or_null(gpu.reason)}};
  Json list = Json::array();
  for (const sysinfo::LibraryPresence& library : libraries) {
    list.push_back(Json{{"name", library.name},
                        {"present", library.is_present},
                        {"version", or_null(library.version)},
                        {"reason", text_or_null(library.reason)}});
  }
  out["libraries"] = std::move(list);
  Json kept = Json::object();
  for (const auto& [key, value] : variables) kept[key] = value;
  out["variables"] = std::move(kept);
  return out;
}

Json make_tool_json(const std::string& name) {
  return make_tool_json(name, sysinfo::build_info(), sysinfo::list_backends());
}

Json make_environment_json(const std::optional<std::string>& isa_in_use,
                           const char* const* environment) {
  return make_environment_json(sysinfo::read_host(), sysinfo::probe_gpu(),
                               sysinfo::probe_libraries(), isa_in_use,
                               sysinfo::reportable_variables(environment));
}

std::string format_utc(std::int64_t unix_time_s) {
  using std::chrono::days;
  const std::chrono::sys_seconds time{std::chrono::seconds(unix_time_s)};
  const auto day = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss clock{time - day};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace moe::report
