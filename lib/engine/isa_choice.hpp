#pragma once

// Which instruction-set level to run: the best one that the machine has and that computes right
// values here.

#include <optional>
#include <string>

#include "kernels/api.hpp"

namespace moe::engine {

struct IsaChoice {
  kernels::Isa isa = kernels::Isa::kScalar;
  std::string reason;  // one line for the report: what was chosen, what was passed over and why
};

// Without `forced`: the best supported level whose self-test passes. With it: that level or an
// error. Throws Error(kUnavailable) when the machine or the build lacks the forced level,
// Error(kCorruptData) when the forced level, or every level, fails its self-test.
[[nodiscard]] IsaChoice choose_isa(std::optional<kernels::Isa> forced);

}  // namespace moe::engine
