// Goal: what is written reads back as the same tokens or counts; synthetic traffic has the truth it
// claims; pruning names the experts that carry least.

#include "lib/routing/export.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/prune.hpp"
#include "lib/routing/synthetic.hpp"
#include "lib/routing/trace.hpp"
#include "lib/routing/windows.hpp"
#include "tests/lib/routing/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using moe::test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every token's ids, in order.
std::vector<std::int32_t> all_ids(RoutingInput& input) {
  std::vector<std::int32_t> ids;
  TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) ids.insert(ids.end(), block.ids.begin(), block.ids.end());
  return ids;
}

TEST(Export, AsTraceKeepsEveryToken) {
  const TempDir dir;
  for (const char* name : {"esft/summary_topk.npy", "vllm_patch_olmoe/moe_routes_excerpt.jsonl"}) {
    RoutingInput input = open_input(test::data_file(name));
    const std::string file = (dir / "t.safetensors").string();
    export_trace(input, file, {{"made_by", "test"}});
    RoutingInput back = open_input(file);
    EXPECT_EQ(back.info.format, Format::kMoekitTrace);
    EXPECT_EQ(back.info.layers, input.info.layers);
    EXPECT_EQ(back.info.num_experts, input.info.num_experts);
    EXPECT_EQ(all_ids(back), all_ids(input)) << name;
    // The reader that loads a trace as a whole accepts it, too.
    EXPECT_EQ(read_trace(file).info.extra.at("made_by"), "test");
  }
}

TEST(Export, AsJsonLinesKeepsEveryToken) {
  const TempDir dir;
  SyntheticSpec spec;
  spec.num_tokens = 500;
  RoutingInput input = make_synthetic(spec, 100);
  const std::string file = (dir / "t.jsonl").string();
  export_json_lines(input, file);
  RoutingInput back = open_input(file);
  EXPECT_EQ(back.info.num_experts, 64);
  EXPECT_TRUE(back.info.has_time);
  EXPECT_EQ(all_ids(back), all_ids(input));
}

TEST(Export, AsTraceRefusesTokensOfDifferentK) {
  const TempDir dir;
  moe::test::write_file(
      dir / "t.jsonl", "{\"layer\": 0, \"topk_ids\": [0, 1]}\n{\"layer\": 0, \"topk_ids\": [2]}\n");
  RoutingInput input = open_input((dir / "t.jsonl").string());
  try {
    export_trace(input, (dir / "o").string(), {});
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 and 1 experts"));
  }
  RoutingInput counts = open_input(test::data_file("synthetic_sglang_stat.pt"));
  EXPECT_THROW(export_trace(counts, (dir / "o").string(), {}), Error);
}

TEST(Export, OfUnusedSlotsCutsThemOff) {
  const TempDir dir;
  RoutingInput input = open_input(test::data_file("synthetic_sglang_per_token_rank0.pt"));
  export_trace(input, (dir / "o").string(), {});
  EXPECT_EQ(open_input((dir / "o").string()).info.top_k, 4);  // of 8 slots
}

TEST(Export, OfCountsReadsBackTheSame) {
  const TempDir dir;
  RoutingInput input = open_input(test::data_file("sglang_dsv3/decode_in1000out1000.json"));
  const ExpertCounts expected = count_windows(input);
  export_sglang_json(input, (dir / "a.json").string());
  export_counts_csv(input, (dir / "a.csv").string());
  export_counts_npy(input, (dir / "a.npy").string());
  for (const char* name : {"a.json", "a.csv", "a.npy"}) {
    const ExpertCounts back = load_counts((dir / name).string());
    EXPECT_EQ(back.info.layers, expected.info.layers) << name;
    EXPECT_EQ(back.total(), expected.total()) << name;
  }
}

TEST(Synthetic, IsTheSameForTheSameSeed) {
  SyntheticSpec spec;
  spec.num_tokens = 300;
  RoutingInput a = make_synthetic(spec, 1024);
  RoutingInput b = make_synthetic(spec, 17);
  EXPECT_EQ(all_ids(a), all_ids(b));
  spec.seed = 2;
  RoutingInput c = make_synthetic(spec, 1024);
  EXPECT_NE(all_ids(a), all_ids(c));
}

// With one expert a token the counts are a multinomial sample of the shares: every count within
// five standard deviations.
TEST(Synthetic, FollowsTheSharesItClaims) {
  SyntheticSpec spec;
  spec.top_k = 1;
  spec.num_experts = 16;
  spec.num_layers = 2;
  spec.num_tokens = 40000;
  const SyntheticTruth truth(spec);
  RoutingInput input = make_synthetic(spec, 1024);
  const std::vector<std::int64_t> counts = test::totals_of(input);
  for (std::int64_t l = 0; l < 2; ++l) {
    const std::vector<double> shares = truth.shares(l, 0.0);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1.0, 1e-12);
    for (std::size_t e = 0; e < 16; ++e) {
      const double wanted = shares[e] * 40000.0;
      const double seen = static_cast<double>(counts[static_cast<std::size_t>(l) * 16 + e]);
      EXPECT_NEAR(seen, wanted, 5.0 * std::sqrt(wanted * (1.0 - shares[e])));
    }
  }
}

TEST(Synthetic, BurstRisesToItsFactorAndFallsAgain) {
  SyntheticSpec spec;
  spec.kind = SyntheticKind::kBurst;
  spec.num_tokens = 64000;  // 50 s
  const SyntheticTruth truth(spec);
  const auto hot = static_cast<std::size_t>(truth.burst_expert(1));
  const double before = truth.shares(1, 19.9)[hot];
  EXPECT_NEAR(truth.shares(1, 25.0)[hot] / before, 2.0, 1e-9);
  EXPECT_NEAR(truth.shares(1, 30.0)[hot] / before, 3.0, 1e-9);
  EXPECT_NEAR(truth.shares(1, 39.9)[hot] / before, 3.0, 1e-9);
  EXPECT_NEAR(truth.shares(1, 40.0)[hot] / before, 1.0, 1e-9);
}

TEST(Synthetic, DriftEndsAtAnotherOrderAndSwitchIsAtOnce) {
  SyntheticSpec spec;
  spec.kind = SyntheticKind::kDrift;
  const SyntheticTruth drift(spec);
  spec.kind = SyntheticKind::kSwitch;
  spec.event_s = 3.0;
  const SyntheticTruth change(spec);
  EXPECT_EQ(drift.shares(0, 0.0), change.shares(0, 2.9));
  EXPECT_EQ(drift.shares(0, drift.duration_s()), change.shares(0, 3.0));
  EXPECT_NE(change.shares(0, 2.9), change.shares(0, 3.0));
}

TEST(Prune, TakesTheLeastUsedAndSaysWhatIsLost) {
  UsageProfile profile;
  profile.counts = {50, 5, 30, 15, 25, 25, 25, 25};
  const auto half = prune_experts(profile, 2, 0.5, 1);
  EXPECT_THAT(half[0].experts, ElementsAre(1, 3));
  EXPECT_DOUBLE_EQ(half[0].lost_share, 0.20);
  EXPECT_THAT(half[1].experts, ElementsAre(2, 3));  // ties go to the higher id
  EXPECT_DOUBLE_EQ(half[1].lost_share, 0.50);
  // top_k experts stay, whatever the share.
  EXPECT_EQ(prune_experts(profile, 2, 0.9, 2)[0].experts.size(), 2U);
  UsageProfile other;
  other.counts = {0, 60, 0, 40, 1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(judge_pruning(half, other)[0].lost_share, 1.0);
}

TEST(Prune, RanksByWeightWhereItIsRecorded) {
  UsageProfile profile;
  profile.counts = {10, 10, 10, 10};
  profile.mass = {1.0, 8.0, 0.5, 0.5};
  const auto pruned = prune_experts(profile, 1, 0.25, 1);
  EXPECT_THAT(pruned[0].experts, ElementsAre(3));
  EXPECT_DOUBLE_EQ(pruned[0].lost_share, 0.25);
  EXPECT_DOUBLE_EQ(pruned[0].lost_mass_share, 0.05);
}

TEST(Prune, OfADomainCostsMoreOnAnother) {
  const auto profile_of = [](const char* domain) {
    RoutingInput input = open_input(test::scenario_file(
        std::string("checkpoints/tinymoe-qwen3/routing-") + domain + ".safetensors"));
    return usage_profile(input);
  };
  const auto pruned = prune_experts(profile_of("english"), 6, 0.5, 4);
  const auto judged = judge_pruning(pruned, profile_of("python"));
  double here = 0.0;
  double there = 0.0;
  for (std::size_t l = 0; l < 6; ++l) {
    here += pruned[l].lost_share;
    there += judged[l].lost_share;
  }
  EXPECT_LT(here, there);
}

}  // namespace
}  // namespace moe::routing
