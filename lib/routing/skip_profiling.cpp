#include "lib/routing/skip_profiling.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "lib/routing/id_cleaner.hpp"

namespace moe::routing {
namespace {

// Tokens at the start that have the experts of the first one.
std::int64_t leading_run(TokenSource& source) {
  std::vector<std::int32_t> first;
  std::int64_t length = 0;
  TokenBlock block;
  source.rewind();
  while (source.next(block)) {
    const std::int64_t width = block.num_layers * block.top_k;
    for (std::int64_t t = 0; t < block.num_tokens; ++t) {
      const std::int32_t* ids = block.ids_of(t, 0);
      if (first.empty()) first.assign(ids, ids + width);
      if (!std::equal(first.begin(), first.end(), ids)) return length;
      ++length;
    }
  }
  return length;
}

template <typename Element>
void drop_front(std::vector<Element>& values, std::int64_t tokens, std::int64_t per_token) {
  if (values.empty()) return;
  values.erase(values.begin(), values.begin() + tokens * per_token);
}

class SkippingSource final : public TokenSource {
 public:
  SkippingSource(std::unique_ptr<TokenSource> source, std::int64_t num_skipped)
      : source_(std::move(source)), num_skipped_(num_skipped) {
    rewind();
  }

  void rewind() override {
    source_->rewind();
    left_ = num_skipped_;
    observations_.clear();
  }

  std::int64_t num_tokens() const override {
    const std::int64_t all = source_->num_tokens();
    return all < 0 ? all : all - num_skipped_;
  }

  bool next(TokenBlock& block) override {
    while (source_->next(block)) {
      observations_ = source_->observations();
      const std::int64_t cut = std::min(left_, block.num_tokens);
      left_ -= cut;
      if (cut == block.num_tokens) continue;
      if (cut > 0) drop(block, cut);
      return true;
    }
    return false;
  }

 private:
  static void drop(TokenBlock& block, std::int64_t tokens) {
    drop_front(block.ids, tokens, block.num_layers * block.top_k);
    drop_front(block.weights, tokens, block.num_layers * block.top_k);
    drop_front(block.step, tokens, 1);
    drop_front(block.request, tokens, 1);
    drop_front(block.token, tokens, 1);
    drop_front(block.phase, tokens, 1);
    drop_front(block.time_s, tokens, 1);
    block.num_tokens -= tokens;
  }

  std::unique_ptr<TokenSource> source_;
  std::int64_t num_skipped_;
  std::int64_t left_ = 0;
};

}  // namespace

void skip_profiling(RoutingInput& input) {
  if (input.tokens == nullptr) return;
  const std::int64_t length = leading_run(*input.tokens);
  input.tokens->rewind();
  if (length < kMinDummyRun) return;
  add_observation(input.observations, "profiling.skipped", length,
                  "tokens of the engine's own warm-up at the start were left out");
  input.tokens = std::make_unique<SkippingSource>(std::move(input.tokens), length);
}

}  // namespace moe::routing
