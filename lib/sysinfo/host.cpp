#include "lib/sysinfo/host.hpp"

#include <algorithm>
#include <sstream>

#include <sys/utsname.h>

#include "lib/sysinfo/text_file.hpp"

namespace moe::sysinfo {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> read_limit(const fs::path& cgroup) {
  auto limit = read_integer(cgroup / "memory.max");
  if (!limit) limit = read_integer(cgroup / "memory/memory.limit_in_bytes");
  // Version 1 says "none" with a number close to 2^63.
  if (!limit || *limit <= 0 || *limit >= (std::int64_t{1} << 60)) return std::nullopt;
  return limit;
}

// "always [madvise] never" -> "madvise".
std::optional<std::string> bracketed(const std::optional<std::string>& line) {
  if (!line) return std::nullopt;
  const std::size_t open = line->find('[');
  const std::size_t close = line->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return line->substr(open + 1, close - open - 1);
}

std::optional<std::array<double, 3>> read_load(const fs::path& root) {
  const auto line = read_line(root / "proc/loadavg");
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  std::array<double, 3> load{};
  if (!(words >> load[0] >> load[1] >> load[2])) return std::nullopt;
  return load;
}

std::optional<std::string> read_os_name(const fs::path& root) {
  const auto text = read_text(root / "etc/os-release");
  if (!text) return std::nullopt;
  constexpr std::string_view kKey = "PRETTY_NAME=";
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kKey)) continue;
    std::string name = line.substr(kKey.size());
    name.erase(std::remove(name.begin(), name.end(), '"'), name.end());
    return name;
  }
  return std::nullopt;
}

// Hints only: a file that container runtimes leave, what the firmware calls the machine, and the
// processor flag that hypervisors set.
std::optional<std::string> detect_virtualization(const fs::path& root) {
  std::error_code ignored;
  if (fs::exists(root / ".dockerenv", ignored)) return "container (docker)";
  if (fs::exists(root / "run/.containerenv", ignored)) return "container (podman)";
  if (fs::exists(root / "var/run/secrets/kubernetes.io", ignored)) return "container (kubernetes)";
  const auto cpuinfo = read_text(root / "proc/cpuinfo");
  const auto flags = cpuinfo ? find_value(*cpuinfo, "flags") : std::nullopt;
  if (!flags || (" " + *flags + " ").find(" hypervisor ") == std::string::npos) return std::nullopt;
  const auto vendor = read_line(root / "sys/class/dmi/id/sys_vendor");
  return vendor ? "hypervisor (" + *vendor + ")" : std::string("hypervisor");
}

}  // namespace

MemoryInfo read_memory(const fs::path& root) {
  MemoryInfo memory;
  if (const auto meminfo = read_text(root / "proc/meminfo")) {
    memory.total_bytes = parse_kilobytes(find_value(*meminfo, "MemTotal"));
    memory.available_bytes = parse_kilobytes(find_value(*meminfo, "MemAvailable"));
    memory.huge_page_bytes = parse_kilobytes(find_value(*meminfo, "Hugepagesize"));
    if (const auto count = find_value(*meminfo, "HugePages_Total")) {
      memory.huge_pages_total = parse_integer(*count);
    }
  }
  memory.limit_bytes = read_limit(root / "sys/fs/cgroup");
  memory.transparent_huge_pages =
      bracketed(read_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  return memory;
}

HostInfo read_host(const fs::path& root) {
  HostInfo host;
  utsname names{};
  if (uname(&names) == 0) {
    host.host = names.nodename;
    host.kernel = std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
  host.os = read_os_name(root);
  host.virtualization = detect_virtualization(root);
  host.load_average = read_load(root);
  host.cpu = read_cpu(root);
  host.memory = read_memory(root);
  return host;
}

std::optional<std::int64_t> usable_memory_bytes(const MemoryInfo& memory) {
  if (!memory.available_bytes) return memory.limit_bytes;
  if (!memory.limit_bytes) return memory.available_bytes;
  return std::min(*memory.available_bytes, *memory.limit_bytes);
}

}  // namespace moe::sysinfo
