#include "lib/routing/token_source.hpp"

#include "lib/routing/id_cleaner.hpp"

namespace moe::routing {

void TokenBlock::resize(std::int64_t tokens, const InputInfo& info) {
  num_tokens = tokens;
  num_layers = info.num_layers();
  top_k = info.top_k;
  const auto n = static_cast<std::size_t>(tokens);
  const std::size_t slots = n * static_cast<std::size_t>(num_layers * top_k);
  ids.assign(slots, kUnusedSlot);
  weights.assign(info.has_weights ? slots : 0, 0.0F);
  step.assign(n, 0);
  request.assign(n, 0);
  token.assign(n, 0);
  phase.assign(n, Phase::kPrefill);
  time_s.assign(info.has_time ? n : 0, 0.0);
}

void TokenSource::observe(const std::string& code, std::int64_t count, const std::string& detail) {
  add_observation(observations_, code, count, detail);
}

void CountSource::observe(const std::string& code, std::int64_t count, const std::string& detail) {
  add_observation(observations_, code, count, detail);
}

}  // namespace moe::routing
