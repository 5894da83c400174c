// Laws that hold for every model and layout, over drawn ones; the seed is in the trace.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/planner/fit.hpp"
#include "tests/lib/planner/byte_support.hpp"

namespace moe::planner {
namespace {

constexpr std::uint64_t kSeed = 20240607;
constexpr int kDraws = 300;

const std::vector<model::Architecture>& models() {
  static const std::vector<model::Architecture> all = [] {
    std::vector<model::Architecture> list;
    for (const char* name :
         {"Mixtral-8x7B-v0.1", "DeepSeek-V3", "Qwen3-30B-A3B", "gpt-oss-120b", "Jamba-v0.1",
          "Qwen3-Next-80B-A3B", "MiMo-V2-Flash", "Llama-4-Scout-17B-16E", "DeepSeek-V4-Flash",
          "Nemotron-3-Nano-30B-A3B", "MiniMax-Text-01", "Gemma-4-26B-A4B"}) {
      list.push_back(model_of(name));
    }
    return list;
  }();
  return all;
}

struct Draw {
  const model::Architecture* model;
  Layout layout;
  FitOptions options;
};

// A legal layout and options from the n-th numbers of the seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : rng_(seed) {}

  template <typename Check>
  void run(Check&& check) {
    int legal = 0;
    for (int at = 0; legal < kDraws && at < 40 * kDraws; ++at) {
      Draw draw = next();
      if (!layout_problem(*draw.model, draw.layout).empty()) continue;
      SCOPED_TRACE(fmt::format("draw {} of seed {}: {} {}", at, kSeed, draw.model->name,
                               describe(draw.layout)));
      check(draw);
      ++legal;
    }
    ASSERT_EQ(legal, kDraws);
  }

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(rng_.next_below(static_cast<std::uint64_t>(bound)));
  }

 private:
  Draw next() {
    Draw draw;
    draw.model = &models()[static_cast<std::size_t>(below(std::ssize(models())))];
    draw.layout.tp = 1 << below(4);
    draw.layout.dp = 1 << below(4);
    draw.layout.pp = static_cast<std::int32_t>(1 + below(4));
    draw.layout.ep = below(2) == 0 ? 1 : draw.layout.stage_gpus();
    if (draw.layout.ep > 1) draw.layout.redundant_experts = static_cast<std::int32_t>(below(40));
    draw.layout.has_replicated_shared = below(2) == 0;
    draw.options.memory_bytes = (8 + below(200)) << 30;
    draw.options.request_tokens = 1 + below(100000);
    draw.options.kv.manager =
        std::array{KvManager::kHybrid, KvManager::kUniform, KvManager::kLlamaCpp,
                   KvManager::kSglangRatio}[static_cast<std::size_t>(below(4))];
    draw.options.kv.block_tokens = 1 << below(8);
    draw.options.overhead.engine = std::array{Engine::kVllm, Engine::kSglang,
                                              Engine::kTrtLlm}[static_cast<std::size_t>(below(3))];
    return draw;
  }

  Rng rng_;
};

TEST(ByteLaws, MoreMemoryNeverFitsFewerRequests) {
  Draws draws(kSeed);
  draws.run([&](Draw& draw) {
    const FitResult small = fit(*draw.model, draw.layout, draw.options);
    draw.options.memory_bytes += 1 + draws.below(std::int64_t{64} << 30);
    const FitResult large = fit(*draw.model, draw.layout, draw.options);
    EXPECT_GE(large.max_requests, small.max_requests);
    EXPECT_GE(large.max_requests_worst, small.max_requests_worst);
    EXPECT_GE(large.fits, small.fits);
  });
}

TEST(ByteLaws, LongerRequestsNeverFitMore) {
  Draws draws(kSeed + 1);
  draws.run([&](Draw& draw) {
    const FitResult brief = fit(*draw.model, draw.layout, draw.options);
    draw.options.request_tokens += 1 + draws.below(100000);
    const FitResult extended = fit(*draw.model, draw.layout, draw.options);
    EXPECT_LE(extended.max_requests, brief.max_requests);
    for (std::size_t at = 0; at < brief.stages.size(); ++at) {
      EXPECT_GE(extended.stages[at].request_bytes, brief.stages[at].request_bytes);
    }
  });
}

TEST(ByteLaws, ExpertParallelismNeverChangesTheTotal) {
  Draws draws(kSeed + 2);
  int compared = 0;
  draws.run([&](Draw& draw) {
    draw.layout.redundant_experts = 0;
    draw.layout.has_replicated_shared = false;
    Layout sliced = draw.layout;
    sliced.ep = 1;
    if (draw.layout.ep == 1 || !layout_problem(*draw.model, sliced).empty()) return;
    if (!layout_problem(*draw.model, draw.layout).empty()) return;
    const auto total = [&](const Layout& layout) {
      double sum = 0.0;
      for (const StageWeights& stage : stage_weights(*draw.model, layout)) {
        sum += stage.mean_rank * layout.stage_gpus();
      }
      return sum;
    };
    // Slices repeat what has no width: the biases of gpt-oss, and groups of a scale that are cut.
    const bool has_bias = std::ranges::any_of(draw.model->weights, [](const auto& group) {
      return group.part == model::Part::kRoutedExperts && group.rows == 1;
    });
    EXPECT_LE(total(draw.layout), total(sliced) * (1.0 + 1e-12));
    EXPECT_NEAR(total(draw.layout), total(sliced), (has_bias ? 0.02 : 1e-12) * total(sliced));
    ++compared;
  });
  EXPECT_GT(compared, 20);
}

TEST(ByteLaws, PartsSumToTotalsAndTheWorstRankIsNotBelowTheMean) {
  Draws draws(kSeed + 3);
  draws.run([&](Draw& draw) {
    const std::vector<LayerBytes> layers = layer_bytes(*draw.model, draw.layout);
    std::int64_t in_layers = 0;
    for (const LayerBytes& layer : layers) in_layers += layer.total();
    std::int64_t in_stages = 0;
    for (const StageWeights& stage : stage_weights(*draw.model, draw.layout)) {
      std::int64_t parts = stage.mtp;
      for (const std::int64_t part : stage.by_part) parts += part;
      EXPECT_EQ(parts, stage.worst_rank);
      EXPECT_GE(static_cast<double>(stage.worst_rank), stage.mean_rank * (1.0 - 1e-12));
      in_stages += stage.worst_rank;
    }
    EXPECT_GE(in_stages, in_layers);  // and embedding, head, final norm
    const FitResult result = fit(*draw.model, draw.layout, draw.options);
    for (const RankFit& rank : result.stages) {
      const std::int64_t sum = rank.weights.worst_rank + rank.overhead.activation.value +
                               rank.overhead.graphs.value + rank.overhead.communication.value +
                               rank.overhead.context.value + rank.fragmentation_bytes;
      EXPECT_EQ(rank.used_bytes, sum);
      EXPECT_LE(rank.overhead.activation.low, rank.overhead.activation.value);
      EXPECT_LE(rank.overhead.activation.value, rank.overhead.activation.high);
      EXPECT_GE(rank.max_requests_best, rank.max_requests);
      EXPECT_GE(rank.max_requests, rank.max_requests_worst);
    }
    EXPECT_GE(result.max_requests_best, result.max_requests);
    EXPECT_GE(result.max_requests, result.max_requests_worst);
  });
}

}  // namespace
}  // namespace moe::planner
