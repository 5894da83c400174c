#pragma once

// Which instruction-set level and which numeric mode to run. What the processor and the operating
// system allow, and a self-test, decide what may run; a measurement of a few milliseconds decides
// what does, because the widest instruction is not always the fastest: the bf16 dot product of
// AVX-512 doubles the rate of f32 multiply-adds on Zen 4 and halves it on Emerald Rapids.
//
// The candidates differ in arithmetic, so the choice is made once, before the weights are loaded,
// and recorded. A lower candidate wins only by a clear margin: levels that are about equal do not
// change places from run to run, and with them the last bits of the results.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/api.hpp"
#include "lib/engine/product_loop.hpp"

namespace moe::engine {

// A candidate that is not this much faster than one of a higher level does not displace it.
inline constexpr double kClearlyFaster = 1.25;

// What the choice is for.
struct IsaRequest {
  std::optional<kernels::Isa> forced;
  // The format that most of the weights have, and the numeric modes that are allowed with it.
  kernels::WeightFormat weights = kernels::WeightFormat::kF32;
  std::vector<kernels::ActivationFormat> activations = {kernels::ActivationFormat::kF32};
};

struct MeasuredCase {
  PeakCase of;
  double flops_per_s = 0.0;
};

struct IsaChoice {
  kernels::Isa isa = kernels::Isa::kScalar;
  std::string reason;  // one line for the report: what was chosen, what was passed over and why
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  std::vector<MeasuredCase> measured;  // best level first; empty when there was nothing to choose
};

// What the choice asks of the machine; a test answers for one that is not at hand.
struct IsaProbe {
  std::function<bool(kernels::Isa)> is_there;  // machine and build have the level
  // Name of the first function with wrong values; nullptr when all are right.
  std::function<const char*(kernels::Isa)> first_wrong_function;
  // Why a level that the processor has cannot be used; nullptr when there is nothing to say.
  std::function<const char*(kernels::Isa)> refusal = [](kernels::Isa) { return nullptr; };
  std::function<bool(const PeakCase&)> can_multiply = [](const PeakCase& of) {
    return of.activations == kernels::ActivationFormat::kF32;
  };
  // Operations per second of each, measured by turns; only asked with two candidates and more.
  std::function<std::vector<double>(std::span<const PeakCase>)> rates;
};

// This machine.
[[nodiscard]] IsaProbe machine_probe();

// The candidates are the levels that are there and pass their self-test, each with the allowed
// modes that it gains from; the scalar level only when there is no other, and with a forced level
// that one alone. Throws Error(kUnavailable) when the machine or the build lacks the forced level,
// Error(kCorruptData) when the forced level, or every level, fails its self-test.
[[nodiscard]] IsaChoice choose_isa(const IsaRequest& request, const IsaProbe& probe);
// For f32 products on this machine.
[[nodiscard]] IsaChoice choose_isa(std::optional<kernels::Isa> forced);

}  // namespace moe::engine
