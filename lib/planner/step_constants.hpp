#pragma once

// The constants of the step-time model that no kernel measurement gives: launch and scheduling
// time, what prefill costs the decode steps beside it, how requests queue. Fitted to measured
// operating points of whole deployments; each is a global value times factors per engine, per (GPU,
// engine, precision) and so on, every factor drawn towards 1 where measurements are few. What was
// never measured has factor 1: the global value is the stated default.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moe::planner {

enum class Term : std::uint8_t {
  kLayer,             // s per layer: norms, position encoding, routing, activation quantisation
  kSequence,          // s per sequence of a step: sampling, output, bookkeeping
  kHost,              // s per step
  kGemm,              // factor on dense products
  kMoe,               // factor on expert bytes and flops
  kMoeFloor,          // factor on the floor of the fused expert kernel
  kAttention,         // factor on decode attention
  kAllReduce,         // factor
  kAllToAll,          // factor
  kIndexer,           // s per layer with sparse attention
  kStateLayer,        // s per layer with a recurrent state
  kDataParallel,      // factor on kSequence under data-parallel attention
  kPrefillFixed,      // s per prefill step
  kPrefill,           // factor on products and communication of prefill
  kPrefillAttention,  // factor on prefill attention
  kInterference,      // share of a prefill that delays the running decodes
  kQueueBusy,         // wait behind other prompts: factor on rho / (1 - rho)
  kQueueBurst,        // wait behind prompts that arrive together, per client
  kFirstTokenSteps,   // decode steps between a finished prefill and the first token at the client
  kFirstTokenFixed,   // s: tokenizer, HTTP
  kHandover,          // s: from a prefill worker to a decode worker
  kAcceptedTokens,    // tokens per step with speculative decoding
  kAgeDecode,         // factor per month that an engine is older than the reference
  kAgePrefill,
};
inline constexpr std::size_t kNumTerms = 24;
[[nodiscard]] std::string_view term_name(Term term);

// What a factor belongs to.
enum class TermLevel : std::uint8_t {
  kEngine,       // "vllm"
  kGroup,        // "b200-sxm vllm fp4": GPU, engine, precision of the experts
  kAttention,    // "b200-sxm vllm mla": GPU, engine, kind of attention
  kEngineMixer,  // "vllm mla"
};
inline constexpr std::size_t kNumTermLevels = 4;
[[nodiscard]] std::string_view term_level_name(TermLevel level);

// The keys of one deployment, one per level.
struct TermKeys {
  std::array<std::string, kNumTermLevels> keys;
  [[nodiscard]] const std::string& at(TermLevel level) const {
    return keys[static_cast<std::size_t>(level)];
  }
};
[[nodiscard]] TermKeys make_term_keys(std::string_view gpu, std::string_view engine,
                                      std::string_view precision, std::string_view mixer);

struct TermFactors {
  double log_sigma = 0.0;                 // how far a factor may stray; 0: the level is not used
  std::map<std::string, double> factors;  // key -> factor
};

struct TermConstant {
  double prior = 1.0;
  double log_sigma = 1.0;
  double value = 1.0;
  std::array<TermFactors, kNumTermLevels> levels;
};

// Error of a group on rows that the fit has not seen.
struct GroupError {
  std::int64_t num_rows = 0;
  double tpot_median = 0.0;
  double ttft_median = 0.0;
  double tpot_p90 = 0.0;
  double ttft_p90 = 0.0;
};

struct TermValues {
  std::array<double, kNumTerms> values{};
  [[nodiscard]] double operator[](Term term) const {
    return values[static_cast<std::size_t>(term)];
  }
};

struct StepConstants {
  std::string source;
  std::string reference_date;  // engines of this date have age 0
  std::array<TermConstant, kNumTerms> terms;
  std::map<std::string, GroupError> held_out;  // by kGroup key; "all": every row

  [[nodiscard]] const TermConstant& at(Term term) const {
    return terms[static_cast<std::size_t>(term)];
  }
  [[nodiscard]] TermValues resolve(const TermKeys& keys) const;
  // Whether operating points of this (GPU, engine, precision) or at least of the engine were
  // fitted.
  [[nodiscard]] bool knows_group(const TermKeys& keys) const;
  [[nodiscard]] bool knows_engine(std::string_view engine) const;
};

// Throws Error(kInput) naming the term and the field.
[[nodiscard]] StepConstants parse_step_constants(std::string_view json_text,
                                                 const std::string& where);
[[nodiscard]] std::string step_constants_json(const StepConstants& constants);

}  // namespace moe::planner
