#pragma once

#include "kernels/api.hpp"

namespace moe::kernels {

// kernels::self_test on any table, so that tests can try tables with a planted fault.
[[nodiscard]] bool self_test_table(const KernelTable& table, const char** failed) noexcept;

}  // namespace moe::kernels
