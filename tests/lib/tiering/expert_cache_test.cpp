// Hit counts of tests/data/routing/expected_metrics.json, computed with numpy, are the reference.

#include "lib/tiering/expert_cache.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/rng.hpp"
#include "lib/json/read.hpp"
#include "tests/lib/tiering/esft.hpp"

namespace moe::tiering {
namespace {

using json::Json;

CacheCounts replay(Policy policy, const std::vector<std::int32_t>& accesses,
                   std::int32_t num_experts, std::int32_t num_slots) {
  if (policy == Policy::kLru) {
    LruCache cache(num_experts, num_slots);
    cache.access(accesses);
    return cache.counts();
  }
  if (policy == Policy::kLfu) {
    LfuCache cache(num_experts, num_slots);
    cache.access(accesses);
    return cache.counts();
  }
  return belady(accesses, num_experts, num_slots);
}

TEST(ExpertCache, HitsAsOftenAsTheReference) {
  const Json esft =
      json::parse_file(MOE_SOURCE_DIR "/tests/data/routing/expected_metrics.json").at("esft");
  int num_compared = 0;
  for (const auto& [domain, figures] : esft.items()) {
    const std::vector<std::int32_t> ids = test::esft_ids(domain);
    for (const auto& [slots, policies] : figures.at("cache_per_layer").items()) {
      for (const Policy policy : {Policy::kLru, Policy::kLfu, Policy::kBelady}) {
        CacheCounts sum;
        for (std::int32_t layer = 0; layer < test::kLayers; ++layer) {
          sum += replay(policy, test::layer_of(ids, layer), test::kExperts, std::stoi(slots));
        }
        const Json& expected = policies.at(policy_name(policy));
        EXPECT_EQ(sum.num_hits, expected.at("hits").get<std::int64_t>())
            << domain << " " << slots << " " << policy_name(policy);
        EXPECT_EQ(sum.num_accesses, expected.at("accesses").get<std::int64_t>());
        EXPECT_EQ(sum.num_hits + sum.num_first_touch + sum.num_capacity, sum.num_accesses);
        ++num_compared;
      }
    }
  }
  EXPECT_EQ(num_compared, 36);
}

std::vector<std::int32_t> random_accesses(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> accesses;
  for (int i = 0; i < 500; ++i) {
    accesses.push_back(static_cast<std::int32_t>(rng.next_below(1 + rng.next_below(24))));
  }
  return accesses;
}

TEST(ExpertCache, NoPolicyBeatsBeladyAndMoreSlotsDoNotHurtLru) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<std::int32_t> accesses = random_accesses(seed);
    std::int64_t last_hits = -1;
    for (std::int32_t slots = 1; slots <= 26; ++slots) {
      const CacheCounts best = replay(Policy::kBelady, accesses, 24, slots);
      const CacheCounts lru = replay(Policy::kLru, accesses, 24, slots);
      EXPECT_LE(lru.num_hits, best.num_hits);
      EXPECT_LE(replay(Policy::kLfu, accesses, 24, slots).num_hits, best.num_hits);
      EXPECT_GE(lru.num_hits, last_hits);
      EXPECT_EQ(lru.num_first_touch, best.num_first_touch);
      last_hits = lru.num_hits;
    }
    // Everything fits: only first touches miss.
    EXPECT_EQ(replay(Policy::kLru, accesses, 24, 24).num_capacity, 0);
  }
}

// The plain definition: the resident with the oldest use goes.
TEST(ExpertCache, LruIsTheDefinition) {
  const std::vector<std::int32_t> accesses = random_accesses(99);
  std::vector<std::int32_t> resident;
  std::int64_t hits = 0;
  for (const std::int32_t expert : accesses) {
    const auto found = std::find(resident.begin(), resident.end(), expert);
    if (found != resident.end()) {
      ++hits;
      resident.erase(found);
    } else if (resident.size() == 7) {
      resident.erase(resident.begin());
    }
    resident.push_back(expert);
  }
  LruCache cache(24, 7);
  cache.access(accesses);
  EXPECT_EQ(cache.counts().num_hits, hits);
  for (std::int32_t expert = 0; expert < 24; ++expert) {
    EXPECT_EQ(cache.is_resident(expert),
              std::find(resident.begin(), resident.end(), expert) != resident.end());
  }
}

TEST(ExpertCache, StaticKeepsTheHottestOfAProfile) {
  StaticCache cache(std::vector<std::int64_t>{5, 9, 9, 1}, 2);
  cache.access(std::vector<std::int32_t>{1, 2, 0, 0, 3});
  EXPECT_EQ(cache.counts().num_hits, 2);
  EXPECT_EQ(cache.counts().num_first_touch, 2);
  EXPECT_EQ(cache.counts().num_capacity, 1);
}

TEST(ExpertCache, TellsNoRatioWithoutAccesses) {
  EXPECT_FALSE(CacheCounts{}.miss_ratio().has_value());
}

}  // namespace
}  // namespace moe::tiering
