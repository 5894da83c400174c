#pragma once

// Where this process runs, read from the system.

#include <filesystem>
#include <string>

#include "lib/comm/communicator.hpp"

namespace moe::comm {

// Host, process, CPUs it may run on, and the port that carries its traffic to other hosts.
[[nodiscard]] RankPlace find_place();

// The port of the default route, else the first InfiniBand device that is active, else the first
// port that is up and no loopback; empty: none. `root` stands before /proc and /sys.
[[nodiscard]] std::string find_nic(const std::filesystem::path& root = "/");

}  // namespace moe::comm
