#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <sched.h>

#include "lib/sysinfo/host.hpp"
#include "lib/sysinfo/text_file.hpp"

namespace moe::sysinfo {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 18> kIsaFlags = {
    "sse4_2",      "avx",      "f16c",     "fma",         "avx2",        "avx512f",
    "avx512bw",    "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx512_vbmi", "avx_vnni", "amx_tile", "amx_bf16",    "amx_int8",    "amx_fp16"};

// Distinct (package, core) pairs and packages over all listed processors of /proc/cpuinfo.
void count_cores(const std::string& cpuinfo, CpuInfo& cpu) {
  std::set<std::pair<std::string, std::string>> cores;
  std::set<std::string> packages;
  std::int64_t num_threads = 0;
  std::string package;
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (const auto value = find_value(line, "processor")) {
      ++num_threads;
    } else if (const auto id = find_value(line, "physical id")) {
      package = *id;
      packages.insert(package);
    } else if (const auto core = find_value(line, "core id")) {
      cores.emplace(package, *core);
    }
  }
  if (num_threads > 0) cpu.num_threads = num_threads;
  if (!packages.empty()) cpu.num_sockets = static_cast<std::int64_t>(packages.size());
  if (!cores.empty()) cpu.num_cores = static_cast<std::int64_t>(cores.size());
}

void read_flags(const std::string& cpuinfo, CpuInfo& cpu) {
  const auto flags = find_value(cpuinfo, "flags");
  if (!flags) return;
  std::set<std::string> present;
  std::istringstream words(*flags);
  for (std::string word; words >> word;) present.insert(word);
  for (const std::string_view flag : kIsaFlags) {
    if (present.count(std::string(flag)) != 0) cpu.isa_flags.emplace_back(flag);
  }
}

// "32K", "1M" -> bytes.
std::optional<std::int64_t> parse_cache_size(std::string_view text) {
  std::int64_t factor = 1;
  if (text.ends_with('K')) factor = 1024;
  if (text.ends_with('M')) factor = std::int64_t{1024} * 1024;
  if (factor != 1) text.remove_suffix(1);
  const auto value = parse_integer(text);
  if (!value || *value <= 0 || *value > (std::int64_t{1} << 40)) return std::nullopt;
  return *value * factor;
}

std::vector<CpuCache> read_caches(const fs::path& cpu0) {
  constexpr int kMaxCaches = 16;
  std::vector<CpuCache> caches;
  for (int i = 0; i < kMaxCaches; ++i) {
    const fs::path folder = cpu0 / "cache" / ("index" + std::to_string(i));
    const auto level = read_integer(folder / "level");
    const auto kind = read_line(folder / "type");
    const auto size = read_line(folder / "size");
    if (!level || !kind || !size) break;
    const auto size_bytes = parse_cache_size(*size);
    const bool is_known = *kind == "Data" || *kind == "Instruction" || *kind == "Unified";
    if (!size_bytes || !is_known || *level < 1) continue;
    CpuCache cache{*level, *kind, *size_bytes, {}};
    cache.kind[0] = static_cast<char>(cache.kind[0] - 'A' + 'a');
    if (const auto shared = read_line(folder / "shared_cpu_list")) {
      cache.shared_by_threads = count_list(*shared);
    }
    caches.push_back(std::move(cache));
  }
  return caches;
}

// Version 2 of the control groups ("max 100000" or "150000 100000"), else version 1.
std::optional<double> read_quota(const fs::path& cgroup) {
  if (const auto line = read_line(cgroup / "cpu.max")) {
    const std::size_t blank = line->find(' ');
    if (blank == std::string::npos) return std::nullopt;
    const auto quota = parse_integer(line->substr(0, blank));
    const auto period = parse_integer(line->substr(blank + 1));
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota = read_integer(cgroup / "cpu" / "cpu.cfs_quota_us");
  const auto period = read_integer(cgroup / "cpu" / "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::int64_t> count_usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::nullopt;
  return CPU_COUNT(&set);
}

}  // namespace

CpuInfo read_cpu(const fs::path& root) {
  CpuInfo cpu;
  if (const auto cpuinfo = read_text(root / "proc/cpuinfo")) {
    cpu.model = find_value(*cpuinfo, "model name");
    cpu.vendor = find_value(*cpuinfo, "vendor_id");
    count_cores(*cpuinfo, cpu);
    read_flags(*cpuinfo, cpu);
  }
  const fs::path cpus = root / "sys/devices/system/cpu";
  cpu.num_usable_threads = count_usable_threads();
  cpu.quota_cores = read_quota(root / "sys/fs/cgroup");
  if (const auto active = read_integer(cpus / "smt/active")) cpu.smt_active = *active != 0;
  cpu.governor = read_line(cpus / "cpu0/cpufreq/scaling_governor");
  cpu.caches = read_caches(cpus / "cpu0");
  return cpu;
}

}  // namespace moe::sysinfo
