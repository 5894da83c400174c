#pragma once

// Bounds of a machine that is worth describing; a hostile file hits them before memory runs out.

#include <string>

#include "lib/topology/graph.hpp"

namespace moe::topology {

inline constexpr std::size_t kMaxNodes = 4096;
inline constexpr std::size_t kMaxDevices = 512;  // GPUs and NICs
inline constexpr std::size_t kMaxCpus = 256;
inline constexpr std::size_t kMaxLinks = 65536;

// Throws Error(kInput) when one more node would be too many.
void require_room(const Topology& topology, const std::string& where);

// Throws Error(kInput) when the devices, CPUs or links are too many to relate each to each.
void require_sane_counts(const Topology& topology, const std::string& where);

}  // namespace moe::topology
