#pragma once

// The memory nodes of the machine, as far as this process may use them, and the two requests to the
// system that placement needs. Topology is read from files, nothing is measured.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moe::sysinfo {

struct NumaNode {
  std::int32_t id = 0;
  std::vector<std::int32_t> cpus;  // those that the process may run on; empty: memory only
  // 0: it has none, or the process may not allocate there. Unknown: nullopt.
  std::optional<std::int64_t> memory_bytes;
  // [node of the topology] relative, 10 to itself; empty when unknown.
  std::vector<std::int32_t> distances;
};

struct NumaTopology {
  std::vector<NumaNode> nodes;  // ascending ids, at least one
  // Why the machine is taken as one node, in one line; empty when the topology is known.
  std::string unknown_reason;
};

// What the process may use of the machine.
struct NumaLimits {
  std::vector<std::int32_t> cpus;                 // ascending
  std::optional<std::vector<std::int32_t>> mems;  // nodes to allocate on; nullopt: all
};

inline const std::filesystem::path kNodeFolder = "/sys/devices/system/node";

// Reads online, node<N>/cpulist, node<N>/meminfo and node<N>/distance below `folder`. Files that
// are missing or make no sense give one node with all usable CPUs, and the reason.
[[nodiscard]] NumaTopology read_numa(const std::filesystem::path& folder, const NumaLimits& limits);

// CPUs that the calling thread may run on; empty when the system does not say.
[[nodiscard]] std::vector<std::int32_t> usable_cpus();

// Of this process: usable_cpus() and the nodes of its control group.
[[nodiscard]] NumaLimits numa_limits(const std::filesystem::path& status = "/proc/self/status");

// What placement asks of the system; a test answers for a machine that is not at hand. Requests
// return 0 or an errno.
struct NumaSystem {
  std::function<NumaTopology()> topology;
  // Pages of the block that nobody has touched come from the nodes by turns. The block begins at a
  // page.
  std::function<int(std::span<const std::byte> block, std::span<const std::int32_t> nodes)>
      interleave;
  // The calling thread runs on these CPUs only.
  std::function<int(std::span<const std::int32_t> cpus)> bind_thread;
};

// This machine.
[[nodiscard]] const NumaSystem& machine_numa();

}  // namespace moe::sysinfo
