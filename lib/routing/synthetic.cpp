#include "lib/routing/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/rng.hpp"

namespace moe::routing {
namespace {

// Streams of random numbers: popularity orders, then tokens.
constexpr std::uint64_t kOrderStream = 1;
constexpr std::uint64_t kTokenStream = 2;

// Zipf shares over a shuffled order of the experts.
std::vector<double> zipf_shares(const SyntheticSpec& spec, Rng& rng) {
  const auto n = static_cast<std::size_t>(spec.num_experts);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.next_below(i)]);
  std::vector<double> shares(n);
  double sum = 0.0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    shares[order[rank]] = std::pow(static_cast<double>(rank + 1), -spec.zipf_s);
    sum += shares[order[rank]];
  }
  for (double& share : shares) share /= sum;
  return shares;
}

void check_spec(const SyntheticSpec& spec) {
  const bool is_sound = spec.num_layers >= 1 && spec.num_experts >= 1 && spec.top_k >= 1 &&
                        spec.num_tokens >= 1 && spec.tokens_per_step >= 1 && spec.step_s > 0.0 &&
                        spec.zipf_s >= 0.0 && spec.burst_factor > 0.0 && spec.burst_ramp_s > 0.0;
  if (!is_sound) throw Error(ErrorCode::kUsage, "synthetic trace: sizes must be above 0");
  if (spec.top_k > spec.num_experts) {
    throw Error(ErrorCode::kUsage, fmt::format("synthetic trace: a token cannot take {} of {} "
                                               "experts",
                                               spec.top_k, spec.num_experts));
  }
}

class SyntheticSource final : public TokenSource {
 public:
  SyntheticSource(const SyntheticSpec& spec, InputInfo info, std::int64_t block_tokens)
      : spec_(spec), info_(std::move(info)), truth_(spec), block_tokens_(block_tokens) {}

  void rewind() override { token_ = 0; }
  std::int64_t num_tokens() const override { return spec_.num_tokens; }

  bool next(TokenBlock& block) override {
    if (token_ == spec_.num_tokens) return false;
    const std::int64_t step = token_ / spec_.tokens_per_step;
    const std::int64_t step_end = std::min((step + 1) * spec_.tokens_per_step, spec_.num_tokens);
    const std::int64_t count = std::min(block_tokens_, step_end - token_);
    block.resize(count, info_);
    const double time_s = static_cast<double>(step) * spec_.step_s;
    for (std::int64_t l = 0; l < block.num_layers; ++l) fill_layer(block, l, time_s);
    for (std::int64_t t = 0; t < count; ++t) {
      const auto i = static_cast<std::size_t>(t);
      block.step[i] = step;
      // Every token of a step belongs to a sequence of its own, as in decoding.
      block.request[i] = (token_ + t) % spec_.tokens_per_step;
      block.token[i] = step;
      block.phase[i] = Phase::kDecode;
      block.time_s[i] = time_s;
    }
    token_ += count;
    return true;
  }

 private:
  void fill_layer(TokenBlock& block, std::int64_t layer, double time_s) {
    const std::vector<double> shares = truth_.shares(layer, time_s);
    std::vector<double> ends(shares.size());  // running sums
    std::partial_sum(shares.begin(), shares.end(), ends.begin());
    for (std::int64_t t = 0; t < block.num_tokens; ++t) {
      // A stream for each token and layer: any part can be made again on its own.
      const auto position = static_cast<std::uint64_t>((token_ + t) * block.num_layers + layer);
      Rng rng(spec_.seed, kTokenStream + (position << 8));
      const std::int64_t at = (t * block.num_layers + layer) * block.top_k;
      draw(shares, ends, rng, block.ids.data() + at, block.weights.data() + at);
    }
  }

  // One after the other without repetition: draws again when an expert is taken already.
  void draw(const std::vector<double>& shares, const std::vector<double>& ends, Rng& rng,
            std::int32_t* ids, float* weights) const {
    double sum = 0.0;
    for (std::int32_t k = 0; k < info_.top_k;) {
      const double at = rng.next_uniform() * ends.back();
      const auto found = std::upper_bound(ends.begin(), ends.end(), at);
      const auto id = static_cast<std::int32_t>(
          std::min(std::distance(ends.begin(), found), std::ptrdiff_t{info_.num_experts - 1}));
      if (std::find(ids, ids + k, id) != ids + k) continue;
      ids[k++] = id;
      sum += shares[static_cast<std::size_t>(id)];
    }
    for (std::int32_t k = 0; k < info_.top_k; ++k) {
      weights[k] = static_cast<float>(shares[static_cast<std::size_t>(ids[k])] / sum);
    }
  }

  SyntheticSpec spec_;
  InputInfo info_;
  SyntheticTruth truth_;
  std::int64_t block_tokens_;
  std::int64_t token_ = 0;
};

}  // namespace

SyntheticTruth::SyntheticTruth(const SyntheticSpec& spec) : spec_(spec) {
  check_spec(spec);
  Rng rng(spec.seed, kOrderStream);
  for (std::int32_t l = 0; l < spec.num_layers; ++l) {
    before_.push_back(zipf_shares(spec, rng));
    after_.push_back(zipf_shares(spec, rng));
    // The expert in the middle of the ranks: a burst makes it hot that was not.
    std::vector<std::int32_t> order(static_cast<std::size_t>(spec.num_experts));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<double>& shares = before_.back();
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return shares[static_cast<std::size_t>(a)] > shares[static_cast<std::size_t>(b)];
    });
    burst_experts_.push_back(order[order.size() / 2]);
  }
}

double SyntheticTruth::duration_s() const {
  const std::int64_t num_steps =
      (spec_.num_tokens + spec_.tokens_per_step - 1) / spec_.tokens_per_step;
  return static_cast<double>(num_steps) * spec_.step_s;
}

std::int32_t SyntheticTruth::burst_expert(std::int64_t layer) const {
  return burst_experts_[static_cast<std::size_t>(layer)];
}

std::vector<double> SyntheticTruth::shares(std::int64_t layer, double time_s) const {
  const auto l = static_cast<std::size_t>(layer);
  std::vector<double> shares = before_[l];
  switch (spec_.kind) {
    case SyntheticKind::kZipf:
      break;
    case SyntheticKind::kSwitch:
      if (time_s >= spec_.event_s) shares = after_[l];
      break;
    case SyntheticKind::kDrift: {
      const double moved = std::clamp(time_s / duration_s(), 0.0, 1.0);
      for (std::size_t e = 0; e < shares.size(); ++e) {
        shares[e] = (1.0 - moved) * before_[l][e] + moved * after_[l][e];
      }
      break;
    }
    case SyntheticKind::kBurst: {
      const double since = time_s - spec_.event_s;
      if (since < 0.0 || since >= 2.0 * spec_.burst_ramp_s) break;
      const double risen = std::min(1.0, since / spec_.burst_ramp_s);
      const auto hot = static_cast<std::size_t>(burst_experts_[l]);
      const double before = shares[hot];
      const double raised = std::min(0.99, before * (1.0 + risen * (spec_.burst_factor - 1.0)));
      const double rest = before < 1.0 ? (1.0 - raised) / (1.0 - before) : 1.0;
      for (double& share : shares) share *= rest;
      shares[hot] = raised;
      break;
    }
  }
  return shares;
}

RoutingInput make_synthetic(const SyntheticSpec& spec, std::int64_t block_tokens) {
  check_spec(spec);
  RoutingInput input;
  InputInfo& info = input.info;
  info.format = Format::kMoekitTrace;
  info.name = "synthetic";
  info.model = "synthetic";
  for (std::int32_t l = 0; l < spec.num_layers; ++l) info.layers.push_back(l);
  info.num_experts = spec.num_experts;
  info.top_k = spec.top_k;
  info.has_tokens = true;
  info.has_weights = true;
  info.has_time = true;
  info.has_requests = true;
  input.tokens = std::make_unique<SyntheticSource>(spec, info, block_tokens);
  return input;
}

}  // namespace moe::routing
