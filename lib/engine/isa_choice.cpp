#include "lib/engine/isa_choice.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/format_names.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::Isa;
using kernels::kNumIsas;

// Enough tokens for arithmetic to decide: at one token all levels wait for memory.
constexpr std::int32_t kTimedTokens = 32;
constexpr int kTimedRounds = 12;
constexpr double kRoundS = 100e-6;

std::string case_name(const PeakCase& of) {
  return fmt::format("{} with {} activations", kernels::isa_name(of.isa),
                     kernels::activation_format_name(of.activations));
}

Isa best_level(const IsaProbe& probe) {
  int level = kNumIsas - 1;
  while (level > 0 && !probe.is_there(static_cast<Isa>(level))) --level;
  return static_cast<Isa>(level);
}

void check_forced(Isa isa, const IsaProbe& probe) {
  if (!probe.is_there(isa)) {
    const char* refusal = probe.refusal(isa);
    throw Error(
        ErrorCode::kUnavailable,
        fmt::format("instruction set {}: {}; the best one here is {}", kernels::isa_name(isa),
                    refusal != nullptr ? refusal : "this machine or this build does not have it",
                    kernels::isa_name(best_level(probe))));
  }
  if (const char* failed = probe.first_wrong_function(isa)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("instruction set {}: self-test of {} gave wrong values on this "
                            "machine; choose a lower level",
                            kernels::isa_name(isa), failed));
  }
}

// Levels that may run, best first; says in `passed_over` why others may not.
std::vector<Isa> usable_levels(const IsaProbe& probe, std::string& passed_over) {
  std::vector<Isa> levels;
  const Isa best = best_level(probe);
  for (int level = kNumIsas - 1; level >= 0; --level) {
    const Isa isa = static_cast<Isa>(level);
    if (!probe.is_there(isa)) {
      if (const char* refusal = probe.refusal(isa)) {
        passed_over += fmt::format("; {} cannot be used: {}", kernels::isa_name(isa), refusal);
      } else if (isa < best) {
        passed_over += fmt::format("; {} is not in this build", kernels::isa_name(isa));
      }
      continue;
    }
    if (const char* failed = probe.first_wrong_function(isa)) {
      passed_over += fmt::format("; {} failed its self-test ({})", kernels::isa_name(isa), failed);
      continue;
    }
    levels.push_back(isa);
    // The levels below are candidates too, but scalar code never is beside vector code.
    if (level == static_cast<int>(Isa::kAvx2)) break;
  }
  if (levels.empty()) {
    throw Error(ErrorCode::kCorruptData, "no kernel level passes its self-test on this machine" +
                                             passed_over +
                                             "; the processor or the build is damaged");
  }
  return levels;
}

// A level's modes, the one to prefer first. Rounding activations costs accuracy, so a level that
// has no bf16 products does it only when nothing else is allowed.
std::vector<PeakCase> candidates(const IsaRequest& request, const std::vector<Isa>& levels,
                                 const IsaProbe& probe) {
  const bool is_free_to_choose = request.activations.size() > 1;
  std::vector<PeakCase> cases;
  for (const Isa isa : levels) {
    for (const ActivationFormat mode :
         {ActivationFormat::kInt8, ActivationFormat::kBf16, ActivationFormat::kF32}) {
      const PeakCase of = {isa, request.weights, mode};
      if (std::ranges::count(request.activations, mode) == 0 || !probe.can_multiply(of)) continue;
      const bool gains = mode != ActivationFormat::kBf16 || isa >= Isa::kAvx512Bf16;
      if (gains || !is_free_to_choose) cases.push_back(of);
    }
  }
  if (cases.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} activations: no level that may run here multiplies them with "
                            "these weights; use f32",
                            kernels::activation_format_name(request.activations.front())));
  }
  return cases;
}

// The first that no other one is clearly faster than.
std::size_t first_fast_enough(const std::vector<MeasuredCase>& measured) {
  double fastest = 0.0;
  for (const MeasuredCase& one : measured) fastest = std::max(fastest, one.flops_per_s);
  const auto found = std::find_if(
      measured.begin(), measured.end(),
      [fastest](const MeasuredCase& one) { return one.flops_per_s * kClearlyFaster >= fastest; });
  MOE_CHECK(found != measured.end());
  return static_cast<std::size_t>(found - measured.begin());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best of several rounds, in which all take their turn: what a neighbour on the core takes, it
// takes from all.
std::vector<double> measure_rates(std::span<const PeakCase> cases) {
  std::vector<ProductLoop> loops;
  for (const PeakCase& of : cases) loops.emplace_back(of, 1);
  std::vector<double> rates(cases.size(), 0.0);
  for (int round = 0; round < kTimedRounds; ++round) {
    for (std::size_t i = 0; i < loops.size(); ++i) {
      loops[i].run(0, kTimedTokens);  // brings the operands back into the cache
      const auto begin = std::chrono::steady_clock::now();
      double duration_s = 0.0;
      double flops = 0.0;
      do {
        loops[i].run(0, kTimedTokens);
        flops += ProductLoop::flops(kTimedTokens);
        duration_s = seconds_since(begin);
      } while (duration_s < kRoundS);
      rates[i] = std::max(rates[i], flops / duration_s);
    }
  }
  return rates;
}

}  // namespace

IsaProbe machine_probe() {
  return {.is_there =
              [](Isa isa) {
                return kernels::isa_supported(isa) && kernels::kernel_table(isa) != nullptr;
              },
          .first_wrong_function = [](Isa isa) -> const char* {
            const char* failed = nullptr;
            return kernels::self_test(isa, &failed) ? nullptr : failed;
          },
          .refusal = [](Isa isa) { return kernels::isa_refusal(isa); },
          .can_multiply = [](const PeakCase& of) { return can_multiply(of); },
          .rates = measure_rates};
}

IsaChoice choose_isa(std::optional<Isa> forced) {
  IsaRequest request;
  request.forced = forced;
  return choose_isa(request, machine_probe());
}

IsaChoice choose_isa(const IsaRequest& request, const IsaProbe& probe) {
  MOE_CHECK(!request.activations.empty());
  std::string passed_over;
  std::vector<Isa> levels;
  if (request.forced) {
    check_forced(*request.forced, probe);
    levels = {*request.forced};
  } else {
    levels = usable_levels(probe, passed_over);
  }
  const std::vector<PeakCase> cases = candidates(request, levels, probe);
  IsaChoice choice;
  std::size_t chosen = 0;
  if (cases.size() > 1) {
    const std::vector<double> rates = probe.rates(cases);
    MOE_CHECK(rates.size() == cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) choice.measured.push_back({cases[i], rates[i]});
    chosen = first_fast_enough(choice.measured);
  }
  choice.isa = cases[chosen].isa;
  choice.activations = cases[chosen].activations;
  if (request.forced) {
    choice.reason = fmt::format("{} as requested", kernels::isa_name(choice.isa));
  } else if (cases.size() == 1) {
    choice.reason = fmt::format("{} is the best level that this machine runs right",
                                kernels::isa_name(choice.isa));
  } else {
    choice.reason = fmt::format(
        "{} is the best level that this machine runs right and that none "
        "measured faster by {} and more",
        kernels::isa_name(choice.isa), kClearlyFaster);
  }
  for (std::size_t i = 0; i < chosen; ++i) {
    passed_over +=
        fmt::format("; {} measured slower than {}", case_name(cases[i]), case_name(cases[chosen]));
  }
  choice.reason += passed_over;
  return choice;
}

}  // namespace moe::engine
