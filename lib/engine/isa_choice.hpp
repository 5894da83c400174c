#pragma once

// Which instruction-set level to run: the best one that the machine has and that computes right
// values here.

#include <functional>
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

// What the choice asks of the machine; a test answers for one that is not at hand.
struct IsaProbe {
  std::function<bool(kernels::Isa)> is_there;  // machine and build have the level
  // Name of the first function with wrong values; nullptr when all are right.
  std::function<const char*(kernels::Isa)> first_wrong_function;
};
[[nodiscard]] IsaChoice choose_isa(std::optional<kernels::Isa> forced, const IsaProbe& probe);

}  // namespace moe::engine
