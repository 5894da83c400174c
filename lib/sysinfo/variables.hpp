#pragma once

// The part of a process environment that may stand in a report. The environment itself is read by
// lib/app and passed in.

#include <map>
#include <string>
#include <string_view>

namespace moe::sysinfo {

// NCCL_*, UCX_*, OMP_*, MOE_* and CUDA_VISIBLE_DEVICES, except names that look like a secret
// (TOKEN, KEY, SECRET, PASSWORD, PASSWD, CREDENTIAL, AUTH in any case).
[[nodiscard]] bool is_reportable_variable(std::string_view name);

// `environment` is a null-terminated array of "NAME=value"; null gives an empty map.
[[nodiscard]] std::map<std::string, std::string> reportable_variables(
    const char* const* environment);

}  // namespace moe::sysinfo
