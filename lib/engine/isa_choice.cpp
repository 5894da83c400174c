#include "lib/engine/isa_choice.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

using kernels::Isa;

IsaChoice check_forced(Isa isa) {
  if (!kernels::isa_supported(isa) || kernels::kernel_table(isa) == nullptr) {
    throw Error(
        ErrorCode::kUnavailable,
        fmt::format("instruction set {}: this machine or this build does not have it; the "
                    "best one here is {}",
                    kernels::isa_name(isa), kernels::isa_name(kernels::best_supported_isa())));
  }
  const char* failed = nullptr;
  if (!kernels::self_test(isa, &failed)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("instruction set {}: self-test of {} gave wrong values on this "
                            "machine; choose a lower level",
                            kernels::isa_name(isa), failed));
  }
  return {isa, fmt::format("{} as requested", kernels::isa_name(isa))};
}

}  // namespace

IsaChoice choose_isa(std::optional<Isa> forced) {
  if (forced) return check_forced(*forced);
  std::string passed_over;
  for (int level = static_cast<int>(kernels::best_supported_isa()); level >= 0; --level) {
    const Isa isa = static_cast<Isa>(level);
    const char* failed = nullptr;
    if (!kernels::isa_supported(isa) || kernels::kernel_table(isa) == nullptr) {
      passed_over += fmt::format("; {} is not in this build", kernels::isa_name(isa));
    } else if (kernels::self_test(isa, &failed)) {
      return {isa, fmt::format("{} is the best level that this machine runs right{}",
                               kernels::isa_name(isa), passed_over)};
    } else {
      passed_over += fmt::format("; {} failed its self-test ({})", kernels::isa_name(isa), failed);
    }
  }
  throw Error(ErrorCode::kCorruptData, "no kernel level passes its self-test on this machine" +
                                           passed_over + "; the processor or the build is damaged");
}

}  // namespace moe::engine
