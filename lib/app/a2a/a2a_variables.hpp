#pragma once

// Findings on NCCL's environment variables: misspelt, without effect on an all-to-all, left over.

#include <cstdint>
#include <optional>
#include <string>

#include "lib/app/report_session.hpp"

namespace moe::app {

// `file` holds lines NAME=value (of env, or nccl.conf); empty: the variables of this process that
// reports may carry. `version` is the NCCL in use ("2.28.9"); empty: that of the library this
// machine has, if any. Returns how many warnings there were. Throws Error(kInput), Error(kUsage).
std::int64_t add_variable_findings(const std::string& scenarios, const std::string& file,
                                   const std::string& version, ReportSession& session);

}  // namespace moe::app
