#include "lib/engine/isa_choice.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

using kernels::Isa;

using kernels::kNumIsas;

Isa best_level(const IsaProbe& probe) {
  int level = kNumIsas - 1;
  while (level > 0 && !probe.is_there(static_cast<Isa>(level))) --level;
  return static_cast<Isa>(level);
}

IsaChoice check_forced(Isa isa, const IsaProbe& probe) {
  if (!probe.is_there(isa)) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("instruction set {}: this machine or this build does not have it; the "
                            "best one here is {}",
                            kernels::isa_name(isa), kernels::isa_name(best_level(probe))));
  }
  if (const char* failed = probe.first_wrong_function(isa)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("instruction set {}: self-test of {} gave wrong values on this "
                            "machine; choose a lower level",
                            kernels::isa_name(isa), failed));
  }
  return {isa, fmt::format("{} as requested", kernels::isa_name(isa))};
}

}  // namespace

IsaChoice choose_isa(std::optional<Isa> forced) {
  return choose_isa(forced, {.is_there =
                                 [](Isa isa) {
                                   return kernels::isa_supported(isa) &&
                                          kernels::kernel_table(isa) != nullptr;
                                 },
                             .first_wrong_function =
                                 [](Isa isa) {
                                   const char* failed = nullptr;
                                   return kernels::self_test(isa, &failed) ? nullptr : failed;
                                 }});
}

IsaChoice choose_isa(std::optional<Isa> forced, const IsaProbe& probe) {
  if (forced) return check_forced(*forced, probe);
  std::string passed_over;
  for (int level = static_cast<int>(best_level(probe)); level >= 0; --level) {
    const Isa isa = static_cast<Isa>(level);
    if (!probe.is_there(isa)) {
      passed_over += fmt::format("; {} is not in this build", kernels::isa_name(isa));
      continue;
    }
    const char* failed = probe.first_wrong_function(isa);
    if (failed == nullptr) {
      return {isa, fmt::format("{} is the best level that this machine runs right{}",
                               kernels::isa_name(isa), passed_over)};
    }
    passed_over += fmt::format("; {} failed its self-test ({})", kernels::isa_name(isa), failed);
  }
  throw Error(ErrorCode::kCorruptData, "no kernel level passes its self-test on this machine" +
                                           passed_over + "; the processor or the build is damaged");
}

}  // namespace moe::engine
