#include "lib/balance/capacity.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

constexpr std::array<CapacityFormula, 6> kFormulas = {
    CapacityFormula::kSwitch, CapacityFormula::kDeepSpeed,  CapacityFormula::kMegatron,
    CapacityFormula::kTutel,  CapacityFormula::kMegaBlocks, CapacityFormula::kFastMoe};

// 1.1 * 640 is a little above 704 in binary: the last digits must not cost a slot.
constexpr double kRounding = 1e-9;

double ceil_of(double value) {
  return std::ceil(value - kRounding * std::abs(value));
}

double floor_of(double value) {
  return std::floor(value + kRounding * std::abs(value));
}

std::int64_t to_count(double value, std::int64_t limit) {
  return static_cast<std::int64_t>(std::clamp(value, 0.0, static_cast<double>(limit)));
}

std::int64_t tutel_capacity(const CapacityRule& rule, double factor, std::int64_t num_tokens,
                            std::int64_t top_k, std::int64_t num_experts, std::int64_t max_count) {
  const double per_expert = static_cast<double>(div_ceil(num_tokens, num_experts));
  const std::int64_t by_factor =
      top_k * to_count(floor_of(std::abs(factor) * per_expert), num_tokens);
  std::int64_t capacity = by_factor;
  if (factor == 0.0) capacity = max_count;
  if (factor < 0.0) capacity = std::min(max_count, by_factor);
  return align_up(capacity, rule.alignment);
}

}  // namespace

const char* capacity_formula_name(CapacityFormula formula) {
  switch (formula) {
    case CapacityFormula::kSwitch:
      return "switch";
    case CapacityFormula::kDeepSpeed:
      return "deepspeed";
    case CapacityFormula::kMegatron:
      return "megatron";
    case CapacityFormula::kTutel:
      return "tutel";
    case CapacityFormula::kMegaBlocks:
      return "megablocks";
    case CapacityFormula::kFastMoe:
      return "fastmoe";
  }
  return "";
}

std::optional<CapacityFormula> capacity_formula_of(std::string_view name) {
  for (const CapacityFormula formula : kFormulas) {
    if (name == capacity_formula_name(formula)) return formula;
  }
  return std::nullopt;
}

std::int64_t expert_capacity(const CapacityRule& rule, double factor, std::int64_t num_tokens,
                             std::int64_t top_k, std::int64_t num_experts, std::int64_t max_count) {
  MOE_CHECK(std::isfinite(factor) && num_tokens >= 0 && top_k > 0 && num_experts > 0);
  MOE_CHECK(rule.alignment > 0 && rule.num_ranks > 0);
  const double tokens = static_cast<double>(num_tokens);
  const double copies = tokens * static_cast<double>(top_k);
  const double experts = static_cast<double>(num_experts);
  const double all_experts = experts * static_cast<double>(rule.num_ranks);
  std::int64_t capacity = 0;
  switch (rule.formula) {
    case CapacityFormula::kSwitch:
      capacity = to_count(ceil_of(factor * copies / experts), num_tokens);
      break;
    case CapacityFormula::kDeepSpeed:
      capacity =
          std::max(rule.min_capacity, to_count(ceil_of(factor * tokens / experts), num_tokens));
      break;
    case CapacityFormula::kMegatron:
      capacity =
          std::max(rule.min_capacity, to_count(ceil_of(factor * copies / experts), num_tokens));
      break;
    case CapacityFormula::kTutel:
      capacity = tutel_capacity(rule, factor, num_tokens, top_k, num_experts, max_count);
      break;
    case CapacityFormula::kMegaBlocks: {
      const double all_copies = copies * static_cast<double>(rule.num_ranks);
      capacity =
          factor == 0.0 ? max_count : to_count(floor_of(factor * all_copies / experts), num_tokens);
      break;
    }
    case CapacityFormula::kFastMoe:
      capacity =
          to_count(floor_of(ceil_of(factor * tokens) * static_cast<double>(top_k) / all_experts),
                   num_tokens);
      break;
  }
  return std::min(capacity, num_tokens);
}

std::optional<double> Overflow::rate() const {
  if (num_assignments == 0) return std::nullopt;
  return static_cast<double>(num_dropped) / static_cast<double>(num_assignments);
}

Overflow overflow(std::span<const std::int64_t> counts, std::int64_t capacity) {
  Overflow result;
  for (const std::int64_t count : counts) {
    result.num_assignments += count;
    result.num_dropped += std::max<std::int64_t>(0, count - capacity);
  }
  return result;
}

std::optional<double> dropless_factor(std::span<const std::int64_t> counts, std::int64_t num_tokens,
                                      std::int64_t top_k) {
  if (counts.empty() || num_tokens <= 0 || top_k <= 0) return std::nullopt;
  const double max = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  return max * static_cast<double>(counts.size()) /
         (static_cast<double>(num_tokens) * static_cast<double>(top_k));
}

}  // namespace moe::balance
