#include "lib/app/skew/cache_replay.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/tiering/prefetch.hpp"

namespace moe::app {
namespace {

std::size_t idx(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// First token of each unit of work: every token, or every forward pass.
std::vector<std::int64_t> units_of(const TokenSequence& tokens, bool by_step) {
  std::vector<std::int64_t> begins;
  for (std::int64_t token = 0; token < tokens.num_tokens(); ++token) {
    if (token == 0 || !by_step || tokens.step[idx(token)] != tokens.step[idx(token) - 1]) {
      begins.push_back(token);
    }
  }
  begins.push_back(tokens.num_tokens());
  return begins;
}

// Experts of one layer of the tokens [begin, end): as they come for one token, each once and in
// order for several.
void gather(const TokenSequence& tokens, std::int64_t begin, std::int64_t end, std::int32_t layer,
            bool by_step, std::vector<std::int32_t>& experts) {
  experts.clear();
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int16_t* ids =
        tokens.ids.data() + (token * tokens.num_layers + layer) * tokens.top_k;
    for (std::int32_t i = 0; i < tokens.top_k; ++i) {
      if (ids[i] >= 0) experts.push_back(ids[i]);
    }
  }
  if (!by_step) return;
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
}

std::vector<std::int64_t> profile_of(const TokenSequence& tokens, std::int32_t layer) {
  std::vector<std::int64_t> counts(idx(tokens.num_experts), 0);
  for (std::int64_t token = 0; token < tokens.num_tokens(); ++token) {
    const std::int16_t* ids =
        tokens.ids.data() + (token * tokens.num_layers + layer) * tokens.top_k;
    for (std::int32_t i = 0; i < tokens.top_k; ++i) {
      if (ids[i] >= 0) ++counts[idx(ids[i])];
    }
  }
  return counts;
}

// Without borders between sequences, blocks of this many tokens stand for them.
constexpr std::int64_t kTokensPerSequence = 64;

std::int64_t sequence_of(const TokenSequence& tokens, std::int64_t token, bool has_requests) {
  return has_requests ? tokens.request[idx(token)] : token / kTokensPerSequence;
}

bool has_requests(const TokenSequence& tokens) {
  return std::adjacent_find(tokens.request.begin(), tokens.request.end(), std::not_equal_to<>()) !=
         tokens.request.end();
}

// What guesses come from.
class Guesser {
 public:
  Guesser(const TokenSequence& profile, const ResidencySpec& spec)
      : spec_(spec),
        cooccurrence_(profile.num_layers, profile.num_experts),
        library_(profile.num_layers, profile.num_experts, spec.library_size) {
    if (spec.prefetch == Prefetch::kCooccurrence) learn_cooccurrence(profile);
    if (spec.prefetch != Prefetch::kActivation) return;
    learn_library(profile);
    tracker_.emplace(library_, profile.num_experts);
  }

  void begin_sequence() {
    if (tracker_) tracker_->begin_sequence();
  }

  // What the layer after this one will want, after this one was seen.
  void guess(std::int32_t layer, std::int32_t num_layers, std::span<const std::int32_t> chosen,
             std::vector<std::int32_t>& guesses) {
    guesses.clear();
    if (tracker_) {
      tracker_->observe(layer, chosen);
      tracker_->predict(spec_.num_guesses, guesses);
    } else if (spec_.prefetch == Prefetch::kCooccurrence && layer + 1 < num_layers) {
      cooccurrence_.predict(layer, chosen, spec_.num_guesses, guesses);
    }
  }

 private:
  void learn_cooccurrence(const TokenSequence& profile) {
    const std::int64_t row = std::int64_t{profile.num_layers} * profile.top_k;
    std::vector<std::int32_t> chosen(idx(row));
    for (std::int64_t token = 0; token < profile.num_tokens(); ++token) {
      std::copy_n(profile.ids.begin() + token * row, row, chosen.begin());
      cooccurrence_.learn(chosen, profile.top_k);
    }
  }

  void learn_library(const TokenSequence& profile) {
    const bool by_request = has_requests(profile);
    std::map<std::int64_t, std::vector<std::int64_t>> sequences;
    for (std::int64_t token = 0; token < profile.num_tokens(); ++token) {
      std::vector<std::int64_t>& counts = sequences[sequence_of(profile, token, by_request)];
      counts.resize(idx(std::int64_t{profile.num_layers} * profile.num_experts), 0);
      for (std::int32_t layer = 0; layer < profile.num_layers; ++layer) {
        const std::int16_t* ids =
            profile.ids.data() + (token * profile.num_layers + layer) * profile.top_k;
        for (std::int32_t i = 0; i < profile.top_k; ++i) {
          if (ids[i] >= 0) ++counts[idx(std::int64_t{layer} * profile.num_experts + ids[i])];
        }
      }
    }
    for (const auto& [sequence, counts] : sequences) library_.add(counts);
  }

  ResidencySpec spec_;
  tiering::CooccurrenceModel cooccurrence_;
  tiering::ActivationLibrary library_;
  std::optional<tiering::ActivationTracker> tracker_;  // of library_
};

}  // namespace

void TokenSequence::append(const TokenSequence& more) {
  const std::int64_t next_step = step.empty() ? 0 : step.back() + 1;
  std::int64_t next_request = 0;
  for (const std::int64_t id : request) next_request = std::max(next_request, id + 1);
  if (more.top_k != top_k) {
    throw Error(ErrorCode::kInput,
                fmt::format("traces of top-{} and top-{} do not go together", top_k, more.top_k));
  }
  ids.insert(ids.end(), more.ids.begin(), more.ids.end());
  for (const std::int64_t id : more.step) step.push_back(next_step + id);
  for (const std::int64_t id : more.request) request.push_back(next_request + id);
}

TokenSequence collect_tokens(routing::RoutingInput& input, std::int64_t max_bytes) {
  TokenSequence tokens;
  tokens.num_layers = static_cast<std::int32_t>(input.info.num_layers());
  tokens.num_experts = input.info.num_experts;
  if (tokens.num_experts > std::numeric_limits<std::int16_t>::max()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{} experts a layer are more than {}", tokens.num_experts,
                            std::numeric_limits<std::int16_t>::max()));
  }
  routing::TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) {
    tokens.top_k = static_cast<std::int32_t>(block.top_k);
    const std::int64_t bytes = static_cast<std::int64_t>(tokens.ids.size() + block.ids.size()) * 2;
    if (bytes > max_bytes) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the trace needs more than {} bytes; cut it: a cache is judged well "
                              "by a million tokens",
                              max_bytes));
    }
    for (const std::int32_t id : block.ids) tokens.ids.push_back(static_cast<std::int16_t>(id));
    tokens.step.insert(tokens.step.end(), block.step.begin(), block.step.end());
    tokens.request.insert(tokens.request.end(), block.request.begin(), block.request.end());
  }
  return tokens;
}

tiering::CacheCounts replay_demand(const TokenSequence& tokens, const TokenSequence& profile,
                                   const std::string& policy, std::int32_t num_slots,
                                   bool by_step) {
  tiering::CacheCounts sum;
  const std::vector<std::int64_t> units = units_of(tokens, by_step);
  std::vector<std::int32_t> experts;
  std::vector<std::int32_t> all;
  for (std::int32_t layer = 0; layer < tokens.num_layers; ++layer) {
    all.clear();
    for (std::size_t unit = 0; unit + 1 < units.size(); ++unit) {
      gather(tokens, units[unit], units[unit + 1], layer, by_step, experts);
      all.insert(all.end(), experts.begin(), experts.end());
    }
    if (policy == "lru") {
      tiering::LruCache cache(tokens.num_experts, num_slots);
      cache.access(all);
      sum += cache.counts();
    } else if (policy == "lfu") {
      tiering::LfuCache cache(tokens.num_experts, num_slots);
      cache.access(all);
      sum += cache.counts();
    } else if (policy == "static") {
      tiering::StaticCache cache(profile_of(profile, layer), num_slots);
      cache.access(all);
      sum += cache.counts();
    } else {
      sum += tiering::belady(all, tokens.num_experts, num_slots);
    }
  }
  return sum;
}

tiering::ResidencyResult replay_residency(const TokenSequence& tokens, const TokenSequence& profile,
                                          const ResidencySpec& spec) {
  tiering::ResidencyReplay replay({.num_layers = tokens.num_layers,
                                   .num_experts = tokens.num_experts,
                                   .num_slots = spec.num_slots,
                                   .low_watermark = spec.low_watermark,
                                   .transfer = spec.transfer});
  Guesser guesser(profile, spec);
  const std::vector<std::int64_t> units = units_of(tokens, spec.by_step);
  const bool by_request = has_requests(tokens);
  std::int64_t sequence = -1;
  std::vector<std::int32_t> wanted;
  std::vector<std::int32_t> guesses;
  for (std::size_t unit = 0; unit + 1 < units.size(); ++unit) {
    const std::int64_t now = sequence_of(tokens, units[unit], by_request);
    if (now != sequence) guesser.begin_sequence();
    sequence = now;
    replay.begin_step();
    for (std::int32_t layer = 0; layer < tokens.num_layers; ++layer) {
      gather(tokens, units[unit], units[unit + 1], layer, true, wanted);
      guesser.guess(layer, tokens.num_layers, wanted, guesses);
      replay.run_layer(layer, wanted, guesses);
    }
  }
  return replay.result();
}

}  // namespace moe::app
