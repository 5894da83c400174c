#pragma once

// The limit of open files of this process, which counts sockets too.

#include <cstdint>

namespace moe {

// Raises the soft limit to at least `wanted`, as far as the hard limit allows. Returns what is in
// force then. For programs, at their start: the limit is the whole process's.
std::int64_t allow_open_files(std::int64_t wanted) noexcept;

}  // namespace moe
