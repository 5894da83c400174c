#include "lib/routing/sanity.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/skip_profiling.hpp"
#include "lib/routing/token_tally.hpp"

namespace moe::routing {
namespace {

// Layer totals of a running engine differ a little (published DeepSeek-V3 counts: 4 in 10,000);
// beyond this something was lost.
constexpr double kTotalsTolerance = 0.005;
// An expert that this share of the tokens takes was not chosen by a router.
constexpr double kSharedShare = 0.99;
constexpr std::int64_t kMinTokensForShared = 100;
constexpr std::int64_t kMinCountsForFactor = 32;
// Below this share of the assignments repeated ids are damage to a few rows.
constexpr double kDuplicateTolerance = 0.001;

struct Rule {
  std::string_view code;
  Trouble trouble;
  std::string_view message;  // follows the count
  std::string_view advice;
};

// Every code once; what varies with the input is set where it is found.
constexpr std::array<Rule, 34> kRules = {{
    {"counts.none", Trouble::kError, "assignments: nothing was routed",
     "record while requests are served; an empty dump is no balanced load"},
    {"tokens.profiling", Trouble::kWarning,
     "tokens at the start have the same experts in every layer: the engine's own profiling pass",
     "--skip-profiling leaves them out"},
    {"tokens.padding", Trouble::kWarning,
     "tokens in runs with the same experts in every layer: padding that was counted as load",
     "mask padding where the trace is recorded"},
    {"tokens.zero_weight", Trouble::kWarning, "tokens whose weights are all zero: padding",
     "mask padding where the trace is recorded"},
    {"tokens.empty", Trouble::kWarning, "tokens without an expert in any layer", ""},
    {"rows.missing", Trouble::kNote, "rows: tokens that some layers did not record", ""},
    {"top_k.varies", Trouble::kNote, "rows use fewer experts than the widest one", ""},
    {"ids.duplicate", Trouble::kError, "times a token names an expert twice in one layer",
     "the buffer was never filled or holds something else; record it again"},
    {"ids.sentinel", Trouble::kNote, "unused slots", ""},
    {"ids.sentinel_ambiguous", Trouble::kWarning,
     "ids are the type's largest value, which is an expert and also how -1 is stored",
     "record the ids in a wider type"},
    {"ids.shared_expert", Trouble::kNote, "ids of fused shared experts, counted apart", ""},
    {"ids.out_of_range", Trouble::kError, "ids are out of range",
     "--experts and --shared-experts say how many there are; a fused shared expert shows up as one "
     "id more"},
    {"experts.shared_suspected", Trouble::kWarning,
     "experts are taken by nearly every token: a fused shared expert, most likely",
     "--shared-experts N counts it apart"},
    {"experts.inferred", Trouble::kNote, "experts, inferred from the largest id",
     "--experts N says it"},
    {"top_k.inferred", Trouble::kNote, "experts a token, inferred", "--top-k N says it"},
    {"requests.single", Trouble::kNote,
     "times the position starts anew within one request id: sequences cannot be told apart", ""},
    {"time.backwards", Trouble::kWarning, "tokens are earlier than the one before",
     "windows in seconds put them into the window at hand"},
    {"steps.backwards", Trouble::kWarning, "steps come after a later one", ""},
    {"steps.gap", Trouble::kWarning, "forward passes are missing",
     "figures hold for what was recorded; nothing is interpolated"},
    {"steps.zero", Trouble::kNote, "recorded steps are all zero: unused entries of a ring buffer",
     ""},
    {"layers.zero", Trouble::kNote, "layers are zero throughout: dense, or not recorded",
     "they are left out of every mean"},
    {"layers.unequal_totals", Trouble::kNote, "different layer totals", ""},
    {"counts.negative", Trouble::kError, "counts are negative: a 32-bit counter wrapped around",
     "other counts may have wrapped without a trace; record fewer steps per dump"},
    {"counts.fractional", Trouble::kNote, "counts are no whole numbers and were rounded", ""},
    {"counts.common_factor", Trouble::kWarning,
     "divides every count: tokens were counted several times (once per data-parallel rank?)",
     "ratios hold, absolute figures do not"},
    {"counts.one_block", Trouble::kError,
     "experts in one block have all the load: one rank's dump taken for all",
     "give the dumps of all ranks"},
    {"counts.not_multiple_of_top_k", Trouble::kWarning,
     "layers have a total that is no multiple of top_k: padding, dropped or lost assignments", ""},
    {"ranks.missing", Trouble::kError, "records of ranks are missing",
     "give the dumps of all ranks together, or their folder"},
    {"records.same_on_ranks", Trouble::kNote, "records repeat another rank's tokens",
     "they count once"},
    {"placement.mixed", Trouble::kError, "layers have different placements in the files given",
     "give the dumps of one recording"},
    {"placement.last_only", Trouble::kNote,
     "placement for the whole recording: the last one, kept by the dump",
     "record between two rebalances"},
    {"placement.unknown", Trouble::kWarning, "placement is missing: slots are taken for experts",
     ""},
    {"scores.not_finite", Trouble::kWarning, "rows of scores are not finite and have no experts",
     ""},
    {"profiling.skipped", Trouble::kNote, "tokens of the profiling pass were left out", ""},
}};

const Rule& rule_of(const std::string& code) {
  const auto* rule = std::find_if(kRules.begin(), kRules.end(),
                                  [&](const Rule& candidate) { return candidate.code == code; });
  MOE_CHECK(rule != kRules.end());
  return *rule;
}

class Checker {
 public:
  explicit Checker(RoutingInput& input) : input_(input), info_(input.info) {}

  InputCheck run() {
    if (input_.tokens != nullptr) {
      read_tokens();
    } else {
      read_counts();
    }
    check_totals();
    for (const Observation& observation : input_.observations) add_observed(observation);
    const auto& observations =
        input_.tokens != nullptr ? input_.tokens->observations() : input_.counts->observations();
    for (const Observation& observation : observations) add_observed(observation);
    InputCheck check;
    check.findings = std::move(findings_);
    check.num_tokens = num_tokens_;
    check.num_steps = num_steps_;
    check.num_assignments = num_assignments_;
    return check;
  }

 private:
  SanityFinding* add(const std::string& code, std::int64_t count, const std::string& detail = "") {
    if (count <= 0) return nullptr;
    const Rule& rule = rule_of(code);
    SanityFinding finding{code, rule.trouble, count, fmt::format("{} {}", count, rule.message),
                          std::string(rule.advice)};
    if (!detail.empty()) finding.message += "; " + detail;
    findings_.push_back(std::move(finding));
    return &findings_.back();
  }

  void add_observed(const Observation& observation) {
    const auto same = std::find_if(
        findings_.begin(), findings_.end(),
        [&](const SanityFinding& finding) { return finding.code == observation.code; });
    if (same == findings_.end()) add(observation.code, observation.count, observation.detail);
  }

  // --- token rows ---
  void read_tokens() {
    TokenTally tally(info_);
    TokenBlock block;
    input_.tokens->rewind();
    while (input_.tokens->next(block)) {
      tally.add(block, 0, block.num_tokens);
      for (std::int64_t t = 0; t < block.num_tokens; ++t) read_token(block, t);
    }
    end_run();
    totals_.assign(tally.counts().begin(), tally.counts().end());
    num_tokens_ = tally.num_tokens();
    add("tokens.profiling", num_profiling_);
    add("tokens.padding", num_padding_);
    add("tokens.zero_weight", num_zero_weight_);
    add("tokens.empty", num_empty_);
    add("top_k.varies", num_short_rows_);
    add("time.backwards", num_backwards_);
    if (num_requests_changed_ == 0) add("requests.single", num_restarts_);
    const std::int64_t routed = std::accumulate(totals_.begin(), totals_.end(), std::int64_t{0});
    SanityFinding* duplicates = add("ids.duplicate", tally.num_duplicates());
    const double share = static_cast<double>(tally.num_duplicates()) /
                         static_cast<double>(std::max<std::int64_t>(routed, 1));
    if (duplicates != nullptr && share < kDuplicateTolerance) {
      duplicates->trouble = Trouble::kWarning;
    }
    check_shared();
  }

  void read_token(const TokenBlock& block, std::int64_t t) {
    const auto i = static_cast<std::size_t>(t);
    const std::int32_t* ids = block.ids_of(t, 0);
    const auto width = static_cast<std::size_t>(block.num_layers * block.top_k);
    const bool repeats = !previous_.empty() && std::equal(previous_.begin(), previous_.end(), ids);
    if (!repeats) {
      end_run();
      previous_.assign(ids, ids + width);
      run_ = 0;
    }
    ++run_;
    std::int64_t num_empty_rows = 0;
    std::int32_t all_bits = 0;
    for (std::size_t k = 0; k < width; ++k) all_bits |= ids[k];
    // Unused slots are negative, and most tokens have none.
    for (std::int64_t l = 0; all_bits < 0 && l < block.num_layers; ++l) {
      const std::int32_t* row = ids + l * block.top_k;
      const auto unused = std::count(row, row + block.top_k, kUnusedSlot);
      if (unused == block.top_k) {
        ++num_empty_rows;
      } else if (unused > 0) {
        ++num_short_rows_;
      }
    }
    if (num_empty_rows == block.num_layers) {
      ++num_empty_;
    } else {
      // Layers that no token has are dense; the totals tell.
      empty_rows_ += num_empty_rows;
    }
    if (!block.weights.empty() && num_empty_rows < block.num_layers) {
      const float* weights = block.weights.data() + i * width;
      if (std::all_of(weights, weights + width, [](float w) { return w == 0.0F; })) {
        ++num_zero_weight_;
      }
    }
    if (!has_previous_ || block.step[i] != last_step_) ++num_steps_;
    last_step_ = block.step[i];
    if (info_.has_time) {
      if (has_previous_ && block.time_s[i] < last_time_s_) ++num_backwards_;
      last_time_s_ = block.time_s[i];
    }
    if (info_.has_requests && has_previous_) {
      if (block.request[i] != last_request_) ++num_requests_changed_;
      if (block.token[i] < last_position_) ++num_restarts_;
    }
    last_request_ = block.request[i];
    last_position_ = block.token[i];
    has_previous_ = true;
  }

  void end_run() {
    if (run_ >= kMinDummyRun) {
      (is_first_run_ ? num_profiling_ : num_padding_) += run_;
    }
    is_first_run_ = is_first_run_ && run_ == 0;
    run_ = 0;
  }

  void check_shared() {
    if (num_tokens_ < kMinTokensForShared || info_.top_k < 2) return;
    std::int64_t num_suspects = 0;
    for (std::int32_t e = 0; e < info_.num_experts; ++e) {
      std::int64_t num_layers = 0;
      for (std::int64_t l = 0; l < info_.num_layers(); ++l) {
        const std::int64_t count = totals_[static_cast<std::size_t>(l * info_.num_experts + e)];
        if (static_cast<double>(count) >= kSharedShare * static_cast<double>(num_tokens_)) {
          ++num_layers;
        }
      }
      if (num_layers == info_.num_layers()) ++num_suspects;
    }
    // A trace of one prompt repeated has k such experts; that is padding, and found above.
    if (num_suspects < info_.top_k) add("experts.shared_suspected", num_suspects);
  }

  // --- counts ---
  void read_counts() {
    totals_.assign(static_cast<std::size_t>(info_.num_layers() * info_.num_experts), 0);
    CountStep step;
    input_.counts->rewind();
    std::int64_t num_zero = 0;
    while (input_.counts->next(step)) {
      bool is_zero = true;
      for (std::size_t i = 0; i < totals_.size(); ++i) {
        if (step.counts[i] == 0) continue;
        is_zero = false;
        if (__builtin_add_overflow(totals_[i], step.counts[i], &totals_[i])) {
          throw Error(ErrorCode::kInput, info_.name + ": the counts of one expert pass 2^63");
        }
        factor_ = std::gcd(factor_, step.counts[i]);
        ++num_nonzero_;
      }
      num_zero += is_zero ? 1 : 0;
      ++num_steps_;
    }
    if (num_zero < num_steps_) add("steps.zero", num_zero);
    if (num_nonzero_ >= kMinCountsForFactor && factor_ > 1) {
      add("counts.common_factor", factor_);
    }
  }

  void check_totals() {
    std::vector<std::int64_t> of_layer;
    std::int64_t num_zero = 0;
    std::int64_t num_odd = 0;
    for (std::int64_t l = 0; l < info_.num_layers(); ++l) {
      const auto begin = totals_.begin() + l * info_.num_experts;
      const std::int64_t total = std::accumulate(begin, begin + info_.num_experts, std::int64_t{0});
      if (total == 0) {
        ++num_zero;
        continue;
      }
      of_layer.push_back(total);
      num_assignments_ += total;
      if (info_.top_k > 0 && total % info_.top_k != 0) ++num_odd;
    }
    if (of_layer.empty()) {
      findings_.clear();
      SanityFinding* none = add("counts.none", 1);
      none->count = 0;
      none->message = "0 assignments: nothing was routed";
      return;
    }
    add("layers.zero", num_zero);
    if (empty_rows_ > 0) {
      add("rows.missing", empty_rows_ - num_zero * (num_tokens_ - num_empty_));
    }
    if (input_.counts != nullptr) add("counts.not_multiple_of_top_k", num_odd);
    const auto [least, most] = std::minmax_element(of_layer.begin(), of_layer.end());
    const std::set<std::int64_t> distinct(of_layer.begin(), of_layer.end());
    if (distinct.size() > 1) {
      const double spread = static_cast<double>(*most - *least) / static_cast<double>(*most);
      SanityFinding* unequal =
          add("layers.unequal_totals", static_cast<std::int64_t>(distinct.size()),
              fmt::format("from {} to {}", *least, *most));
      if (spread > kTotalsTolerance) unequal->trouble = Trouble::kWarning;
    }
    check_one_block();
  }

  // The experts with load of all layers lie in one aligned block of E / G experts.
  void check_one_block() {
    std::int64_t first = info_.num_experts;
    std::int64_t last = -1;
    std::set<std::int64_t> used;
    for (std::size_t i = 0; i < totals_.size(); ++i) {
      if (totals_[i] == 0) continue;
      const std::int64_t expert = static_cast<std::int64_t>(i) % info_.num_experts;
      first = std::min(first, expert);
      last = std::max(last, expert);
      used.insert(expert);
    }
    if (used.size() < 2) return;
    for (std::int64_t size = 2; size <= info_.num_experts / 2; ++size) {
      if (info_.num_experts % size != 0 || first / size != last / size) continue;
      // A block that is mostly idle itself is a small sample, not a rank.
      if (static_cast<std::int64_t>(used.size()) * 2 <= size) continue;
      add("counts.one_block", size,
          fmt::format("{} to {} of {} experts", first / size * size, first / size * size + size - 1,
                      info_.num_experts));
      return;
    }
  }

  RoutingInput& input_;
  const InputInfo& info_;
  std::vector<SanityFinding> findings_;
  std::vector<std::int64_t> totals_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::int32_t> previous_;
  std::int64_t run_ = 0;
  bool is_first_run_ = true;
  std::int64_t num_profiling_ = 0;
  std::int64_t num_padding_ = 0;
  std::int64_t num_zero_weight_ = 0;
  std::int64_t num_empty_ = 0;
  std::int64_t num_short_rows_ = 0;
  std::int64_t empty_rows_ = 0;
  std::int64_t num_backwards_ = 0;
  std::int64_t num_requests_changed_ = 0;
  std::int64_t num_restarts_ = 0;
  std::int64_t num_steps_ = 0;
  std::int64_t num_assignments_ = 0;
  std::int64_t last_step_ = 0;
  double last_time_s_ = 0.0;
  std::int64_t last_request_ = 0;
  std::int64_t last_position_ = 0;
  bool has_previous_ = false;
  std::int64_t factor_ = 0;
  std::int64_t num_nonzero_ = 0;
};

}  // namespace

InputCheck check_input(RoutingInput& input) {
  return Checker(input).run();
}

bool has_error(const InputCheck& check) {
  return std::any_of(
      check.findings.begin(), check.findings.end(),
      [](const SanityFinding& finding) { return finding.trouble == Trouble::kError; });
}

void require_sane(const RoutingInput& input, const InputCheck& check) {
  for (const SanityFinding& finding : check.findings) {
    if (finding.trouble != Trouble::kError) continue;
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: {} ({}){}{}",
                    input.info.files.empty() ? input.info.name : input.info.files[0].string(),
                    finding.message, finding.code, finding.advice.empty() ? "" : "; ",
                    finding.advice));
  }
}

}  // namespace moe::routing
