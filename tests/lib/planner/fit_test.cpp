#include "lib/planner/fit.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/planner/hardware.hpp"
#include "tests/lib/planner/byte_support.hpp"

namespace moe::planner {
namespace {

constexpr double kGib = 1073741824.0;

Layout layout(std::int32_t tp, std::int32_t dp = 1, std::int32_t ep = 1, std::int32_t pp = 1) {
  Layout out;
  out.tp = tp;
  out.dp = dp;
  out.ep = ep;
  out.pp = pp;
  return out;
}

FitOptions bare(double memory_gib, std::int64_t tokens) {
  FitOptions options;
  options.memory_bytes = static_cast<std::int64_t>(memory_gib * kGib);
  options.request_tokens = tokens;
  options.overhead.activation_bytes = static_cast<std::int64_t>(3.0 * kGib);
  options.overhead.graph_bytes = 0;
  options.overhead.communication_bytes = 0;
  options.overhead.context_bytes = 0;
  options.overhead.fragmentation_ratio = 0.0;
  return options;
}

// H100 shows 79.18 GiB; 90 % of it, 3 GiB of activations, 4,608 tokens a request. The example
// divides routers and norms as well, which every rank holds whole: up to one request more.
TEST(Fit, MixtralRequestsAreThoseOfTheWorkedExample) {
  const auto requests = [](const char* name, std::int32_t tp) {
    return static_cast<double>(fit(model_of(name), layout(tp), bare(79.18, 4608)).max_requests);
  };
  EXPECT_NEAR(requests("Mixtral-8x7B-v0.1", 2), 88, 1);
  EXPECT_NEAR(requests("Mixtral-8x7B-v0.1", 4), 331, 1);
  EXPECT_NEAR(requests("Mixtral-8x22B-v0.1", 4), 11, 1);
  EXPECT_NEAR(requests("Mixtral-8x22B-v0.1", 8), 289, 1);
  EXPECT_FALSE(fit(model_of("Mixtral-8x7B-v0.1"), layout(1), bare(79.18, 4608)).weights_fit);
}

// A peer planner leaves the input embedding out: 43.374 and 56.291 GiB.
TEST(StageWeights, TheEmbeddingCounts) {
  const auto rank = [](const char* name, std::int32_t tp) {
    return static_cast<double>(stage_weights(model_of(name), layout(tp))[0].worst_rank) / kGib;
  };
  EXPECT_NEAR(rank("Mixtral-8x7B-v0.1", 2), 43.495, 0.005);
  EXPECT_NEAR(rank("Qwen3-30B-A3B", 1), 56.87, 0.005);
}

// It counts 61 MoE layers in DeepSeek-V3 (96.86 GiB at DP8 EP8); 58 and three dense ones:
// 32 experts * 44.04 MB * 58 + attention 11.4 GB + shared 2.55 GB + dense 1.19 GB + tables 3.7 GB.
TEST(StageWeights, DenseLayersAreNotMoeLayers) {
  const double gib =
      static_cast<double>(stage_weights(model_of("DeepSeek-V3"), layout(1, 8, 8))[0].worst_rank) /
      kGib;
  EXPECT_GT(gib, 93.4);
  EXPECT_LT(gib, 94.2);
}

// It takes one byte for the cache of every FP8 checkpoint: 5.24 GiB for 32 x 5000 tokens.
TEST(KvBytes, AnFp8CheckpointHasA16BitCacheByDefault) {
  const auto gib = [](const char* name, std::int32_t tp, std::int64_t tokens) {
    KvOptions options;
    options.block_tokens = 1;
    const model::Architecture model = model_of(name);
    return static_cast<double>(request_bytes(model, layout(tp), options,
                                             {0, static_cast<std::int32_t>(model.layers.size())},
                                             tokens)) /
           kGib;
  };
  EXPECT_NEAR(32.0 * gib("DeepSeek-V3", 8, 5000), 10.47, 0.005);
  EXPECT_NEAR(32.0 * gib("Qwen3-235B-A22B-FP8", 4, 5000), 2.0 * 3.59, 0.01);
}

// It does not round to blocks: 4.883 GiB for 16 x 5000 tokens of Mixtral at TP2.
TEST(KvBytes, RequestsAreRoundedToBlocks) {
  const model::Architecture mixtral = model_of("Mixtral-8x7B-v0.1");
  KvOptions options;
  EXPECT_EQ(request_bytes(mixtral, layout(2), options, {0, 32}, 5000), 5008 * 131072 / 2);
  options.block_tokens = 64;
  EXPECT_EQ(request_bytes(mixtral, layout(2), options, {0, 32}, 1), 64 * 131072 / 2);
}

struct PerToken {
  const char* model;
  double bytes;
};

// Bytes of one more token in BF16, all layers, by hand from the head counts.
TEST(KvBytes, PerTokenFiguresAreThoseOfTheHeads) {
  for (const PerToken& expected : {PerToken{"Mixtral-8x7B-v0.1", 131072},
                                   {"Mixtral-8x22B-v0.1", 229376},
                                   {"OLMoE-1B-7B", 131072},
                                   {"Qwen1.5-MoE-A2.7B", 196608},
                                   {"Qwen2-57B-A14B", 57344},
                                   {"Qwen3-30B-A3B", 98304},
                                   {"Qwen3-235B-A22B", 192512},
                                   {"DBRX", 163840},
                                   {"GLM-4.5", 376832},
                                   {"GLM-4.5-Air", 188416},
                                   {"MiniMax-M2.5", 253952},
                                   {"Hunyuan-A13B", 131072},
                                   {"dots.llm1", 1015808},
                                   {"Phi-3.5-MoE", 131072},
                                   {"Grok-1", 262144},
                                   {"Arctic", 143360},
                                   {"Granite-3.0-1B-A400M", 49152},
                                   {"Granite-3.0-3B-A800M", 65536},
                                   {"ERNIE-4.5-21B-A3B", 57344},
                                   {"DeepSeek-V2-Lite", 31104},
                                   {"DeepSeek-V2", 69120},
                                   {"DeepSeek-V3", 70272},
                                   {"Kimi-K2-Instruct", 70272},
                                   {"Qwen3-Next-80B-A3B", 24576},
                                   {"Qwen3.5-397B-A17B", 30720},
                                   {"Jamba-v0.1", 16384},
                                   {"MiniMax-Text-01", 40960},
                                   {"Llama-4-Scout-17B-16E", 196608},
                                   {"DeepSeek-VL2-Tiny", 61440}}) {
    SCOPED_TRACE(expected.model);
    const model::Architecture model = model_of(expected.model);
    const KvPerToken kv =
        kv_per_token(model, layout(1), {}, {0, static_cast<std::int32_t>(model.layers.size())});
    EXPECT_DOUBLE_EQ(kv.uniform(), expected.bytes);
  }
  const model::Architecture scout = model_of("Llama-4-Scout-17B-16E");
  EXPECT_DOUBLE_EQ(kv_per_token(scout, layout(1), {}, {0, 48}).growing, 49152);
}

TEST(KvBytes, LatentCachesAreNotDividedByTensorParallelism) {
  const model::Architecture model = model_of("DeepSeek-V3");
  EXPECT_DOUBLE_EQ(kv_per_token(model, layout(8), {}, {0, 61}).uniform(), 70272);
  const model::Architecture grouped = model_of("Qwen3-30B-A3B");  // 4 key-value heads
  EXPECT_DOUBLE_EQ(kv_per_token(grouped, layout(4), {}, {0, 48}).uniform(), 98304 / 4.0);
  EXPECT_DOUBLE_EQ(kv_per_token(grouped, layout(8), {}, {0, 48}).uniform(), 98304 / 4.0);
}

TEST(KvBytes, WindowsAreBoundedByManager) {
  const model::Architecture model = model_of("gpt-oss-120b");
  const auto bytes = [&](KvManager manager, std::int64_t tokens) {
    KvOptions options;
    options.manager = manager;
    options.max_batched_tokens = 1024;
    return request_bytes(model, layout(1), options, {0, 36}, tokens);
  };
  const std::int64_t layer = 2048;  // bytes of a token in one layer
  EXPECT_EQ(bytes(KvManager::kUniform, 65536), 36 * 65536 * layer);
  // ceil((127 + 1024) / 16) + 1 blocks.
  EXPECT_EQ(bytes(KvManager::kHybrid, 65536), 18 * (65536 + 73 * 16) * layer);
  EXPECT_EQ(bytes(KvManager::kLlamaCpp, 65536), 18 * (65536 + 1280) * layer);
  EXPECT_EQ(bytes(KvManager::kSglangRatio, 65536),
            18 * (65536 + 52432) * layer);  // 0.8 of them, to blocks of 16
  EXPECT_EQ(bytes(KvManager::kLlamaCpp, 512), 36 * 512 * layer);
}

// Attention pages grow until they hold a state: short requests pay for a whole page.
TEST(KvBytes, HybridPagesHoldTheState) {
  const model::Architecture next = model_of("Qwen3-Next-80B-A3B");
  KvOptions options;
  const std::int64_t state = 36 * (49152 + 2097152);
  // 2,146,304 bytes of state / 2,048 bytes a token = 1,048, to a multiple of 16.
  EXPECT_EQ(request_bytes(next, layout(1), options, {0, 48}, 10), state + 12 * 1056 * 2048);
  options.pads_hybrid_pages = false;
  EXPECT_EQ(request_bytes(next, layout(1), options, {0, 48}, 10), state + 12 * 16 * 2048);
}

// vllm issues 12895 and 14763: the last stage of DeepSeek-R1 on PP3 TP8 holds MoE layers and head.
TEST(Fit, TheWorstStageDecides) {
  const FitResult result = fit(model_of("DeepSeek-R1"), layout(8, 1, 1, 3), bare(79.18, 4096));
  ASSERT_EQ(result.stages.size(), 3U);
  EXPECT_LT(result.stages[0].weights.worst_rank, result.stages[1].weights.worst_rank);
  EXPECT_NE(result.binding_stage, 0U);
}

TEST(Fit, RefusesWhatNoEngineRuns) {
  const model::Architecture mixtral = model_of("Mixtral-8x7B-v0.1");
  EXPECT_THROW((void)fit(mixtral, layout(3), bare(80, 10)), Error);
  EXPECT_NE(layout_problem(mixtral, layout(64)).find("64"), std::string::npos);
  EXPECT_NE(layout_problem(mixtral, layout(1, 1, 1, 33)).find("33 pipeline stages for 32 layers"),
            std::string::npos);
  EXPECT_NE(layout_problem(mixtral, layout(1, 16, 16)).find("ep 16 for 8 experts"),
            std::string::npos);
  // 1536 / 8 = 192 is no multiple of a 128 block.
  EXPECT_NE(layout_problem(model_of("Qwen3-235B-A22B-FP8"), layout(8)).find("FP8 block"),
            std::string::npos);
  EXPECT_EQ(layout_problem(model_of("Qwen3-235B-A22B-FP8"), layout(8, 1, 8)), "");
  EXPECT_THROW((void)fit(mixtral, layout(2), bare(0.0, 10)), Error);
}

TEST(StageLayers, RemaindersGoBeforeTheLast) {
  EXPECT_EQ(stage_layers(61, 3, 0).end, 20);
  EXPECT_EQ(stage_layers(61, 3, 1).end, 41);
  EXPECT_EQ(stage_layers(61, 3, 2).end, 61);
  EXPECT_EQ(stage_layers(5, 1, 0).end, 5);
}

// 9 routed slots a GPU at EP32 with 32 redundant experts, 2 at EP144 with 32 (DeepSeek's own).
TEST(LayerBytes, RedundantExpertsFillSlots) {
  const model::Architecture model = model_of("DeepSeek-V3");
  Layout prefill = layout(1, 32, 32);
  prefill.redundant_experts = 32;
  Layout decode = layout(1, 144, 144);
  decode.redundant_experts = 32;
  EXPECT_EQ(layer_bytes(model, prefill).back().local_experts, 9);
  EXPECT_EQ(layer_bytes(model, decode).back().local_experts, 2);
  EXPECT_NEAR(static_cast<double>(layer_bytes(model, decode).back().one_expert), 44.04e6, 0.02e6);
}

// deepseek-ai/DeepEP csrc/legacy/config.hpp.
TEST(Overhead, DeepEpBuffersAreTheirFormula) {
  EXPECT_EQ(deepep_low_latency_bytes(7168, 256, 128), 4 * 256 * 128 * 14560LL + 2 * 1024);
  EXPECT_NEAR(static_cast<double>(deepep_low_latency_bytes(7168, 256, 128)) / kGib, 1.777, 0.001);
  EXPECT_NEAR(static_cast<double>(deepep_low_latency_bytes(7168, 288, 128)) / kGib, 2.000, 0.001);
}

TEST(Overhead, GivenBytesReplaceTheBand) {
  OverheadOptions options;
  options.activation_bytes = 5;
  const Overhead result = overhead(model_of("Mixtral-8x7B-v0.1"), layout(2), options);
  EXPECT_TRUE(result.activation.is_given);
  EXPECT_EQ(result.activation.low, 5);
  EXPECT_EQ(result.activation.high, 5);
  EXPECT_FALSE(result.communication.is_given);
  EXPECT_LT(result.communication.low, result.communication.high);
}

// sgl-project/sglang server_args: 80 GiB class cards reserve at least 10 GiB.
TEST(Overhead, SglangReservesWhatItsFormulaSays) {
  OverheadOptions options;
  options.max_sequences = 160;
  const auto memory = static_cast<std::int64_t>(79.18 * kGib);
  EXPECT_NEAR(sglang_reserve(memory, layout(1), options).mem_fraction_static,
              (79.18 - (512 + 1.5 * 8192 + 320 + 128) / 1024.0) / 79.18, 0.0006);
  options.max_batched_tokens = 2048;
  EXPECT_NEAR(sglang_reserve(memory, layout(1), options).mem_fraction_static,
              (79.18 - 10.0) / 79.18, 0.0006);
}

}  // namespace
}  // namespace moe::planner
