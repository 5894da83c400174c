#pragma once

// What a report says about the machine: read from /proc, /sys and uname, nothing is measured and no
// process is started. What cannot be read is absent, never guessed.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moe::sysinfo {

struct CpuCache {
  std::int64_t level = 0;
  std::string kind;  // data, instruction, unified
  std::int64_t size_bytes = 0;
  std::optional<std::int64_t> shared_by_threads;
};

struct CpuInfo {
  std::optional<std::string> model;
  std::optional<std::string> vendor;
  std::optional<std::int64_t> num_sockets;
  std::optional<std::int64_t> num_cores;           // physical, of the machine
  std::optional<std::int64_t> num_threads;         // logical, of the machine, online
  std::optional<std::int64_t> num_usable_threads;  // this process may be scheduled on
  std::optional<double> quota_cores;               // limit of the control group
  std::optional<bool> smt_active;
  std::optional<std::string> governor;  // of the first core
  std::vector<CpuCache> caches;         // of the first core
  std::vector<std::string> isa_flags;   // those of the kernel's list that matter to our kernels
};

struct MemoryInfo {
  std::optional<std::int64_t> total_bytes;
  std::optional<std::int64_t> available_bytes;
  std::optional<std::int64_t> limit_bytes;  // of the control group
  std::optional<std::int64_t> huge_page_bytes;
  std::optional<std::int64_t> huge_pages_total;
  std::optional<std::string> transparent_huge_pages;  // always, madvise, never
};

struct HostInfo {
  std::string host;
  std::optional<std::string> os;
  std::string kernel;
  std::optional<std::string> virtualization;  // "hypervisor", "container (docker)", ...
  std::optional<std::array<double, 3>> load_average;
  CpuInfo cpu;
  MemoryInfo memory;
};

// `root` stands before /proc, /sys and /etc, so that tests can bring their own.
[[nodiscard]] CpuInfo read_cpu(const std::filesystem::path& root = "/");
[[nodiscard]] MemoryInfo read_memory(const std::filesystem::path& root = "/");
[[nodiscard]] HostInfo read_host(const std::filesystem::path& root = "/");

// The largest number of bytes this process may use: available memory, or what the control group
// leaves, whichever is less. nullopt when neither can be read.
[[nodiscard]] std::optional<std::int64_t> usable_memory_bytes(const MemoryInfo& memory);

}  // namespace moe::sysinfo
