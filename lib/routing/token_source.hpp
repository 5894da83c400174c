#pragma once

// Token by token access to any input that has it, in blocks: memory does not grow with the trace.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/routing/expert_counts.hpp"
#include "lib/routing/trace.hpp"

namespace moe::routing {

inline constexpr std::int32_t kUnusedSlot = -1;

// Some tokens with all their layers. Tokens keep the order of the computation (or of the file);
// layers are those of InputInfo::layers. A slot that a token does not use (k varies, layer not
// recorded, token refused) holds kUnusedSlot.
struct TokenBlock {
  std::int64_t num_tokens = 0;
  std::int64_t num_layers = 0;
  std::int64_t top_k = 0;
  std::vector<std::int32_t> ids;      // [tokens, layers, top_k]
  std::vector<float> weights;         // the same shape; empty when not recorded
  std::vector<std::int64_t> step;     // [tokens], forward pass; ascending
  std::vector<std::int64_t> request;  // [tokens]; 0 for all when not recorded
  std::vector<std::int64_t> token;    // [tokens], position in its sequence
  std::vector<Phase> phase;           // [tokens]
  std::vector<double> time_s;         // [tokens]; empty when not recorded

  [[nodiscard]] const std::int32_t* ids_of(std::int64_t token_idx, std::int64_t layer_idx) const {
    return ids.data() + (token_idx * num_layers + layer_idx) * top_k;
  }
  // Sizes everything for so many tokens, ids and weights filled with kUnusedSlot and 0.
  void resize(std::int64_t tokens, const InputInfo& info);
};

// Something that an input showed while it was read and that the canonical form hides, with how
// often: "ids.sentinel" 512. sanity.hpp turns these into findings.
struct Observation {
  std::string code;
  std::int64_t count = 0;
  std::string detail;  // the first case, in words
};

class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  // Fills the block with the next tokens; false at the end. Throws Error(kInput) where the file is
  // broken, naming file and place.
  [[nodiscard]] virtual bool next(TokenBlock& block) = 0;
  // Back to the first token; observations start afresh.
  virtual void rewind() = 0;
  // Number of tokens where the format tells it beforehand, else -1.
  [[nodiscard]] virtual std::int64_t num_tokens() const { return -1; }
  [[nodiscard]] const std::vector<Observation>& observations() const { return observations_; }

 protected:
  void observe(const std::string& code, std::int64_t count, const std::string& detail);
  std::vector<Observation> observations_;
};

// One recorded row of counts: a forward pass, an iteration, or the whole file.
struct CountStep {
  std::int64_t step = -1;
  std::vector<std::int64_t> counts;  // [layers, experts], of InputInfo
};

class CountSource {
 public:
  CountSource() = default;
  CountSource(const CountSource&) = delete;
  CountSource& operator=(const CountSource&) = delete;
  virtual ~CountSource() = default;

  [[nodiscard]] virtual bool next(CountStep& step) = 0;
  virtual void rewind() = 0;
  [[nodiscard]] const std::vector<Observation>& observations() const { return observations_; }

 protected:
  void observe(const std::string& code, std::int64_t count, const std::string& detail);
  std::vector<Observation> observations_;
};

// An opened input: exactly one of the two sources.
struct RoutingInput {
  InputInfo info;
  std::unique_ptr<TokenSource> tokens;
  std::unique_ptr<CountSource> counts;
  std::vector<Observation> observations;  // made while opening
};

}  // namespace moe::routing
