// Goal: a key is where attention looks for it, and the memory is what was foretold. Method: every
// float of some positions is looked up by the formula of kv_cache.hpp.

#include "lib/engine/kv_cache.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moe::engine {
namespace {

constexpr std::int64_t kHeadDim = 6;

// Two layers, three heads of six dims.
model::ModelConfig config_of(std::int32_t chunk = 0) {
  model::ModelConfig config;
  config.num_hidden_layers = 2;
  config.attention.num_kv_heads = 3;
  config.attention.head_dim = static_cast<std::int32_t>(kHeadDim);
  config.layers.resize(2);
  config.layers[1].chunk = chunk;
  return config;
}

std::int64_t bytes_of(const KvCache& cache) {
  std::int64_t bytes = 0;
  for (const auto& block : cache.blocks()) bytes += static_cast<std::int64_t>(block.size());
  return bytes;
}

std::vector<float> numbers(float first) {
  std::vector<float> out(3 * kHeadDim);
  std::generate(out.begin(), out.end(), [&] { return first++; });
  return out;
}

TEST(KvCache, KeepsKeysInPanelsOfSixteenPositions) {
  KvCache cache(config_of(), 2, 40);
  const std::int64_t stride = cache.key_panel_stride();
  EXPECT_EQ(stride, 16 * 32);  // 18 floats fill up two cache lines
  for (const std::int64_t position : {0, 15, 16, 39}) {
    const std::vector<float> key = numbers(100.0F * static_cast<float>(position));
    cache.set_key(1, 1, position, key.data(), 3 * kHeadDim);
  }
  const float* const keys = cache.key(1, 1, 0);
  for (const std::int64_t position : {0, 15, 16, 39}) {
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        const float* const of_head = keys + head * cache.key_head_stride(kHeadDim);
        ASSERT_EQ(of_head[position / 16 * stride + d * 16 + position % 16],
                  static_cast<float>(100 * position + head * kHeadDim + d))
            << position << " " << head << " " << d;
      }
    }
  }
  EXPECT_EQ(cache.key(1, 1, 32), keys + 2 * stride);
}

TEST(KvCache, KeepsKeysInRowsWhereChunksCutPanels) {
  KvCache cache(config_of(24), 1, 40);
  EXPECT_EQ(cache.key_panel_stride(), 0);
  const std::vector<float> key = numbers(7.0F);
  cache.set_key(0, 1, 25, key.data(), 3 * kHeadDim);
  EXPECT_TRUE(std::equal(key.begin(), key.end(), cache.key(0, 1, 25)));
  EXPECT_EQ(cache.key(0, 1, 25) - cache.key(0, 1, 24), cache.key_stride());
  EXPECT_EQ(cache.key_head_stride(kHeadDim), kHeadDim);
  EXPECT_GT(KvCache(config_of(32), 1, 40).key_panel_stride(), 0);
}

TEST(KvCache, TakesTheBytesForetold) {
  for (const std::int64_t context : {1, 16, 40}) {
    EXPECT_EQ(bytes_of(KvCache(config_of(), 3, context)),
              KvCache::total_bytes(config_of(), 3, context));
  }
  EXPECT_EQ(KvCache::total_bytes(config_of(), 1, std::numeric_limits<std::int64_t>::max()),
            std::int64_t{1} << 60);
}

}  // namespace
}  // namespace moe::engine
