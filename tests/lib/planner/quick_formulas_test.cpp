// The published example's figures on the left, the right values on the right. The right values are
// arithmetic on published configs, done by hand.

#include "lib/planner/quick_formulas.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::planner {
namespace {

constexpr double kMiB = 1048576.0;
constexpr double kGiB = 1024.0 * kMiB;

model::Architecture architecture(const std::string& name, const std::string& format = {}) {
  const std::string path = std::string(MOE_SOURCE_DIR) + "/scenarios/models/" + name + ".json";
  model::ArchitectureOptions options;
  options.weight_format = format;
  return model::parse_architecture(test::read_file(path), path, options);
}

QuickInputs h100() {
  QuickInputs in;
  in.gpu.name = "H100";
  in.gpu.memory_bytes_per_s = 3.35e12;
  in.gpu.scale_up_bytes_per_s = 450e9;
  in.gpu.fp8_flops_per_s = 1979e12;
  in.gpu.bf16_flops_per_s = 989e12;
  // 79.18 GiB as torch shows them, 3 GiB of activations, nothing else.
  in.fit.memory_bytes = static_cast<std::int64_t>(79.18 * kGiB);
  in.fit.overhead.activation_bytes = static_cast<std::int64_t>(3.0 * kGiB);
  in.fit.overhead.graph_bytes = 0;
  in.fit.overhead.communication_bytes = 0;
  in.fit.overhead.context_bytes = 0;
  in.fit.overhead.fragmentation_ratio = 0.0;
  return in;
}

// Mixtral 8x22B with the sizes of 8x7B, as the example has it.
QuickInputs published_example() {
  QuickInputs in = h100();
  in.hidden_size = 4096;
  in.num_layers = 32;
  in.ffn_width = 14336;
  in.num_experts = 8;
  in.top_k = 2;
  return in;
}

const QuickRow& row(const std::vector<QuickRow>& rows, const std::string& id) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const QuickRow& one) { return one.id == id; });
  if (found == rows.end()) throw std::runtime_error("no row " + id);
  return *found;
}

struct Expected {
  const char* id;
  double quick;
  double right;
  double tolerance_ratio;
};

void check(const std::vector<QuickRow>& rows, const std::vector<Expected>& expected) {
  for (const Expected& one : expected) {
    const QuickRow& found = row(rows, one.id);
    ASSERT_TRUE(found.quick && found.right) << one.id;
    EXPECT_NEAR(*found.quick, one.quick, one.tolerance_ratio * std::abs(one.quick)) << one.id;
    EXPECT_NEAR(*found.right, one.right, one.tolerance_ratio * std::abs(one.right)) << one.id;
    EXPECT_FALSE(found.why.empty()) << one.id;
  }
}

TEST(QuickFormulas, TrafficOfThePublishedExample) {
  check(quick_rows(architecture("Mixtral-8x22B-v0.1"), published_example()),
        {{"traffic.routing_decisions", 16.0, 112.0, 0.0},
         {"traffic.remote_share", 0.75, 0.875, 0.0},
         // 24.6 MB a layer and 787 MB a token were kilobytes; 400 GB for 512 tokens were 403 MB.
         {"traffic.layer_bytes", 24.576e6, 43008.0, 1e-9},
         {"traffic.all_layers_bytes", 786.432e6, 2408448.0, 1e-9},
         {"traffic.batch_bytes", 402.65e9, 1.233e9, 1e-3},
         {"traffic.batch_time", 402.65e9 / 3.35e12, 0.3425e-3, 1e-3}});
}

TEST(QuickFormulas, BytesOfATokenInALayer) {
  // One vector of DeepSeek-V3 out and back was called top-2.
  QuickInputs in = h100();
  in.hidden_size = 7168;
  check(quick_rows(architecture("Mixtral-8x22B-v0.1"), in),
        {{"traffic.token_layer_bytes", 28672.0, 49152.0, 0.0}});
  in = h100();
  in.has_fp8_dispatch = true;
  // 8 x 7168 x 3 bytes and 224 bytes of scales for each of the 8.
  check(quick_rows(architecture("DeepSeek-V3"), in),
        {{"traffic.token_layer_bytes", 28672.0, 172032.0 + 8.0 * 224.0, 0.0},
         {"traffic.int8_token_bytes", 14336.0, 21504.0, 0.0}});
}

TEST(QuickFormulas, ExpertsOfMixtral) {
  const auto small = quick_rows(architecture("Mixtral-8x7B-v0.1"), h100());
  check(small, {{"memory.one_matrix", 117.44e6, 352.32e6, 1e-3},
                {"memory.one_expert", 88.08e6, 352.32e6, 1e-3},
                {"memory.expert_column", 117.44e6, 11.274e9, 1e-3},
                {"memory.all_experts", 704.6e6, 90.19e9, 1e-3},
                {"memory.all_experts_int8", 352.3e6, 45.1e9, 1e-3},
                {"memory.experts_per_rank", 117.44e6, 11.274e9, 1e-3}});
  EXPECT_NEAR(*row(small, "memory.all_experts").factor(), 128.0, 1e-9);
  check(quick_rows(architecture("Mixtral-8x22B-v0.1"), published_example()),
        {{"memory.one_matrix", 117.44e6, 603.98e6, 1e-3},
         {"memory.expert_column", 117.44e6, 33.82e9, 1e-3},
         {"memory.all_experts", 704.6e6, 270.58e9, 1e-3},
         {"memory.weights", 8.7046e9, 281.24e9, 1e-3}});
}

TEST(QuickFormulas, ANameIsNoParameterCount) {
  const QuickRow dbrx = row(quick_rows(architecture("DBRX"), h100()), "memory.parameters");
  EXPECT_NEAR(*dbrx.right, 131.6e9, 0.5e9);
  EXPECT_NEAR(*dbrx.quick, 16.0 * 36e9, 16.0 * 0.6e9);
}

TEST(QuickFormulas, CacheOfARequest) {
  const auto small = quick_rows(architecture("Mixtral-8x7B-v0.1"), h100());
  check(small, {{"cache.request", 1048576.0, 512.0 * kMiB, 0.0},
                {"cache.request_with_output", 10e6, 576.0 * kMiB, 0.0}});
  EXPECT_NEAR(*row(small, "cache.request").factor(), 512.0, 1e-9);
  check(quick_rows(architecture("Mixtral-8x22B-v0.1"), published_example()),
        {{"cache.request", 1048576.0, 896.0 * kMiB, 0.0},
         {"cache.request_with_output", 10e6, 1008.0 * kMiB, 0.0},
         {"cache.depends_on_routing", 1.0, 0.0, 0.0}});
}

TEST(QuickFormulas, TheCacheDoesNotDependOnRouting) {
  model::Architecture one = architecture("Mixtral-8x7B-v0.1");
  model::Architecture other = one;
  for (model::LayerSpec& layer : other.layers) {
    layer.ffn.top_k = 1;
    layer.ffn.num_experts = 4;
  }
  const StageRange all{0, static_cast<std::int32_t>(one.layers.size())};
  EXPECT_DOUBLE_EQ(kv_per_token(one, Layout{}, {}, all).uniform(),
                   kv_per_token(other, Layout{}, {}, all).uniform());
}

TEST(QuickFormulas, RequestsAtOnce) {
  const auto small = quick_rows(architecture("Mixtral-8x7B-v0.1"), h100());
  // 71.3 GB "free": 7130 requests of 10 MB, 118 real ones.
  check(small, {{"cache.requests_in_free_memory", 7129.5, 118.0, 1e-3}});
  EXPECT_EQ(*row(small, "cache.requests_tp1").right, 0.0);
  EXPECT_NEAR(*row(small, "cache.requests_tp2").right, 88.0, 1.0);
  EXPECT_NEAR(*row(small, "cache.requests_tp4").right, 331.0, 2.0);
  const auto large = quick_rows(architecture("Mixtral-8x22B-v0.1"), published_example());
  EXPECT_EQ(*row(large, "cache.requests_in_free_memory").right, 67.0);
  EXPECT_EQ(*row(large, "cache.requests_tp2").right, 0.0);
  EXPECT_NEAR(*row(large, "cache.requests_tp4").right, 11.0, 1.0);
  EXPECT_NEAR(*row(large, "cache.requests_tp8").right, 289.0, 2.0);
}

TEST(QuickFormulas, TimeToFetchAnExpert) {
  check(quick_rows(architecture("Mixtral-8x7B-v0.1"), h100()),
        {{"offload.one_expert", 1.7616e-3, 7.0464e-3, 1e-3}});
  check(quick_rows(architecture("Mixtral-8x22B-v0.1"), published_example()),
        {{"offload.one_expert", 1.7616e-3, 12.08e-3, 1e-3}});
  EXPECT_NEAR(*row(quick_rows(architecture("DeepSeek-V3"), h100()), "offload.one_expert").right,
              0.88e-3, 0.01e-3);
}

TEST(QuickFormulas, Formats) {
  const auto rows = quick_rows(architecture("Mixtral-8x7B-v0.1"), h100());
  // 48, 24 and 24 GB were said; GPTQ checkpoints are 48.05 GB (8 bit) and 24.65 GB (4 bit).
  check(rows, {{"format.fp16", 46.7e9, 93.4e9, 1e-3},
               {"format.int8", 23.35e9, 48.05e9, 7e-3},
               {"format.awq", 46.7e9, 24.65e9, 2e-2},
               {"format.fp8_saving", 0.55, 0.5, 0.0},
               {"format.int4_saving", 0.55, 0.74, 1e-3},
               {"format.throughput", 9.0, 1.0, 0.0},
               {"format.block_manager", 1.0, 0.0, 0.0}});
}

TEST(QuickFormulas, Hardware) {
  check(quick_rows(architecture("Mixtral-8x7B-v0.1"), h100()),
        {{"hardware.fp8", 619e12, 1979e12, 0.0},
         {"hardware.bf16", 495e12, 989e12, 0.0},
         {"hardware.a2a_ceiling", 900e9, 450e9, 0.0},
         {"hardware.a2a_accept", 700e9, 360e9, 1e-12}});
}

TEST(QuickFormulas, EveryRowSaysWhy) {
  for (const QuickRow& one : quick_rows(architecture("Qwen3-30B-A3B"), h100())) {
    EXPECT_FALSE(one.why.empty()) << one.id;
    EXPECT_FALSE(one.quick_formula.empty()) << one.id;
    EXPECT_FALSE(one.right_formula.empty()) << one.id;
  }
}

}  // namespace
}  // namespace moe::planner
