#include "lib/tiering/residency.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/tiering/esft.hpp"

namespace moe::tiering {
namespace {

using Experts = std::vector<std::int32_t>;

// A load takes 1 s, a layer computes 2 s.
ResidencyOptions small(std::int32_t num_slots) {
  ResidencyOptions options;
  options.num_layers = 2;
  options.num_experts = 8;
  options.num_slots = num_slots;
  options.transfer = {
      .expert_bytes = 100.0, .link_bytes_per_s = 100.0, .latency_s = 0.0, .layer_s = 2.0};
  return options;
}

TEST(Residency, WaitsForEveryMissAndForNoHit) {
  ResidencyReplay replay(small(4));
  replay.begin_step();
  replay.run_layer(0, Experts{1, 2}, {});
  replay.run_layer(1, Experts{3}, {});
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 3.0);
  EXPECT_DOUBLE_EQ(replay.result().compute_s, 4.0);
  replay.begin_step();
  replay.run_layer(0, Experts{1, 2}, {});
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 3.0);
  EXPECT_EQ(replay.result().counts.num_hits, 2);
  EXPECT_EQ(replay.result().counts.num_first_touch, 3);
  EXPECT_DOUBLE_EQ(replay.result().demand_bytes, 300.0);
}

TEST(Residency, HidesARightGuessBehindTheLayerBefore) {
  ResidencyReplay replay(small(4));
  replay.begin_step();
  replay.run_layer(0, Experts{1}, Experts{5, 6});
  replay.run_layer(1, Experts{5, 6}, {});
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 1.0);
  EXPECT_EQ(replay.result().prefetch.num_guesses, 2);
  EXPECT_EQ(replay.result().prefetch.num_useful, 2);
  EXPECT_EQ(replay.result().num_late, 0);
}

TEST(Residency, WaitsForTheRestOfALateGuess) {
  ResidencyOptions options = small(4);
  options.transfer.layer_s = 0.25;
  ResidencyReplay replay(options);
  replay.begin_step();
  replay.run_layer(0, Experts{1}, Experts{5});
  replay.run_layer(1, Experts{5}, {});
  EXPECT_EQ(replay.result().num_late, 1);
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 1.75);
}

TEST(Residency, AWrongGuessDelaysTheMiss) {
  ResidencyOptions options = small(4);
  options.transfer.layer_s = 0.5;
  ResidencyReplay replay(options);
  replay.begin_step();
  replay.run_layer(0, Experts{1}, Experts{5});
  replay.run_layer(1, Experts{6}, {});
  // 1 s for expert 1; then half a second until the guess is through, and 1 s for expert 6.
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 2.5);
  EXPECT_DOUBLE_EQ(replay.result().prefetch.precision(), 0.0);
}

TEST(Residency, FindsWhatIsEvictedAndLoadedAgainWithinAStep) {
  ResidencyReplay replay(small(2));
  replay.begin_step();
  replay.run_layer(0, Experts{0, 1, 2}, {});
  replay.run_layer(0, Experts{0, 1, 2}, {});
  EXPECT_EQ(replay.result().num_overfull, 2);
  EXPECT_GT(replay.result().num_step_reloads, 0);
  const CacheCounts& counts = replay.result().counts;
  EXPECT_EQ(counts.num_hits + counts.num_misses(), counts.num_accesses);
}

TEST(Residency, EmptiesDownToTheLowWatermark) {
  ResidencyOptions options = small(4);
  options.low_watermark = 0.5;
  ResidencyReplay replay(options);
  replay.begin_step();
  for (const std::int32_t expert : {0, 1, 2, 3, 4}) replay.run_layer(0, Experts{expert}, {});
  EXPECT_EQ(replay.result().num_evictions, 2);
}

TEST(Residency, StartsWithWhatIsPreloaded) {
  ResidencyReplay replay(small(2));
  replay.preload(0, Experts{3, 4, 5});
  replay.begin_step();
  replay.run_layer(0, Experts{3, 4}, {});
  EXPECT_EQ(replay.result().counts.num_hits, 2);
  EXPECT_DOUBLE_EQ(replay.result().exposed_s, 0.0);
}

TEST(Residency, AgreesWithTheCacheOnRealRouting) {
  const std::vector<std::int32_t> ids = test::esft_ids("summary");
  ResidencyOptions options;
  options.num_layers = 1;
  options.num_experts = test::kExperts;
  options.num_slots = 32;
  options.transfer = {
      .expert_bytes = 1.0, .link_bytes_per_s = 1.0, .latency_s = 0.0, .layer_s = 1.0};
  ResidencyReplay replay(options);
  LruCache cache(test::kExperts, 32);
  const Experts accesses = test::layer_of(ids, 3);
  for (std::size_t begin = 0; begin < accesses.size(); begin += 6) {
    replay.begin_step();
    replay.run_layer(0, std::span(accesses).subspan(begin, 6), {});
  }
  cache.access(accesses);
  // The replay keeps what the running token needs, the cache does not: a few hits more.
  EXPECT_GE(replay.result().counts.num_hits, cache.counts().num_hits);
  EXPECT_NEAR(static_cast<double>(replay.result().counts.num_hits) /
                  static_cast<double>(cache.counts().num_hits),
              1.0, 0.05);
  EXPECT_DOUBLE_EQ(replay.result().exposed_s,
                   static_cast<double>(replay.result().counts.num_misses()));
}

TEST(Residency, RefusesATransferWithoutSense) {
  ResidencyOptions options = small(2);
  options.transfer.link_bytes_per_s = 0.0;
  EXPECT_THROW(ResidencyReplay{options}, Error);
  options = small(2);
  options.transfer.layer_s = std::nan("");
  EXPECT_THROW(ResidencyReplay{options}, Error);
}

}  // namespace
}  // namespace moe::tiering
