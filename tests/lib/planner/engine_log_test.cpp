#include "lib/planner/engine_log.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/planner/log_compare.hpp"
#include "tests/lib/planner/byte_support.hpp"

namespace moe::planner {
namespace {

namespace fs = std::filesystem;

const fs::path kLogs = fs::path(MOE_SOURCE_DIR) / "tests/data/engine-logs";

EngineLog log_of(const std::string& name) {
  const fs::path file = kLogs / (name + ".log");
  return parse_engine_log(test::read_file(file), file.string());
}

model::Architecture config_of(const std::string& name) {
  const fs::path file = kLogs / "configs" / (name + ".json");
  return model::parse_architecture(test::read_file(file), file.string());
}

const LogTerm& term_of(const LogComparison& comparison, const std::string& name) {
  for (const LogTerm& term : comparison.terms) {
    if (term.name == name) return term;
  }
  ADD_FAILURE() << "no term " << name;
  return comparison.terms.front();
}

// facts.json says what a reader should find in each log, and whether the engine started.
TEST(EngineLog, FindsWhatTheFactsSay) {
  const auto facts = nlohmann::json::parse(test::read_file(kLogs / "facts.json"));
  ASSERT_EQ(facts.size(), 19U);
  for (const auto& [name, fact] : facts.items()) {
    SCOPED_TRACE(name);
    const EngineLog log = log_of("vllm_" + name);
    EXPECT_EQ(log.has_started, fact["started"].get<bool>());
    if (log.has_started) {
      EXPECT_DOUBLE_EQ(log.kv_tokens->value, fact["kv_cache_tokens"].get<double>());
      EXPECT_DOUBLE_EQ(log.max_concurrency->value, fact["max_concurrency"].get<double>());
      EXPECT_EQ(log.concurrency_tokens, fact["max_concurrency_for_tokens"].get<std::int64_t>());
      EXPECT_EQ(log.version, fact["version"].get<std::string>());
    } else {
      EXPECT_FALSE(log.error.empty());
    }
    if (!fact["kv_gib_given"].is_null()) {
      EXPECT_DOUBLE_EQ(log.kv_pool_bytes->value, fact["kv_gib_given"].get<double>() * 1073741824.0);
    }
  }
}

// Every configuration that started is predicted exactly, and so are the two refusals that bytes
// explain.
TEST(LogCompare, StartedServersArePredictedExactly) {
  const auto facts = nlohmann::json::parse(test::read_file(kLogs / "facts.json"));
  int num_started = 0;
  for (const auto& [name, fact] : facts.items()) {
    SCOPED_TRACE(name);
    const LogComparison comparison =
        compare_log(log_of("vllm_" + name), config_of(fact["model"].get<std::string>()), {});
    if (!fact["started"].get<bool>()) continue;
    ++num_started;
    EXPECT_EQ(comparison.start_difference, "");
    for (const LogTerm& term : comparison.terms) {
      if (term.logged) {
        EXPECT_EQ(term.verdict, TermVerdict::kExact) << term.name;
      }
    }
    EXPECT_DOUBLE_EQ(*term_of(comparison, "KV cache blocks").predicted,
                     fact["our_prediction"]["blocks"].get<double>());
    EXPECT_DOUBLE_EQ(*term_of(comparison, "KV bytes per token").predicted,
                     fact["our_prediction"]["kv_bytes_per_token_and_rank"].get<double>());
  }
  EXPECT_EQ(num_started, 15);
}

TEST(LogCompare, RefusalsThatBytesExplainArePredicted) {
  for (const char* name : {"vllm_mixtral_ctx_over", "vllm_mixtral_kv_auto"}) {
    SCOPED_TRACE(name);
    const LogComparison comparison = compare_log(log_of(name), config_of("mixtral"), {});
    EXPECT_FALSE(comparison.predicts_start);
    EXPECT_EQ(comparison.start_difference, "");
  }
  const LogComparison eplb = compare_log(log_of("vllm_mixtral_eplb"), config_of("mixtral"), {});
  EXPECT_NE(eplb.start_difference.find("outside of memory"), std::string::npos);
}

TEST(LogCompare, LlamaCppCachesArePredictedExactly) {
  for (const char* name : {"slots2_ctx4096", "slots4_ctx8192", "slots4_unified", "k_q8_0"}) {
    SCOPED_TRACE(name);
    const LogComparison comparison =
        compare_log(log_of(std::string("llama_server_mixtral_") + name), config_of("mixtral"), {});
    for (const char* term : {"file", "cells of a stream", "K cache", "V cache"}) {
      EXPECT_EQ(term_of(comparison, term).verdict, TermVerdict::kExact) << term;
    }
  }
}

// The figures of vllm-project/vllm#21348 in the words of the two engines.
TEST(LogCompare, PublishedSglangAndVllmFiguresAreMet) {
  const model::Architecture qwen = model_of("Qwen3-235B-A22B-FP8");
  const EngineLog sglang = parse_engine_log(
      "server_args=ServerArgs(model_path='Qwen/Qwen3-235B-A22B-FP8', tp_size=4, ep_size=4, "
      "kv_cache_dtype='auto')\n"
      "[TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n",
      "sglang.log");
  EXPECT_EQ(sglang.engine, Engine::kSglang);
  const LogComparison by_sglang = compare_log(sglang, qwen, {});
  EXPECT_EQ(term_of(by_sglang, "K cache").verdict, TermVerdict::kExact);
  EXPECT_EQ(term_of(by_sglang, "V cache").verdict, TermVerdict::kExact);

  const EngineLog vllm = parse_engine_log(
      "INFO non-default args: {'model': 'Qwen/Qwen3-235B-A22B-FP8', 'tensor_parallel_size': 4, "
      "'enable_expert_parallel': True}\n"
      "INFO Available KV cache memory: 8.11 GiB\n"
      "INFO GPU KV cache size: 178,880 tokens\n",
      "vllm.log");
  LogCompareOptions options;
  options.tolerance = 0.015;
  const LogComparison by_vllm = compare_log(vllm, qwen, options);
  EXPECT_EQ(by_vllm.layout.ep, 4);
  EXPECT_EQ(term_of(by_vllm, "KV cache tokens").verdict, TermVerdict::kClose);
}

// vllm-project/vllm#17327 and the older words of V0.
TEST(LogCompare, WeightsOfARankAreMet) {
  const EngineLog log = parse_engine_log(
      "INFO non-default args: {'tensor_parallel_size': 4}\n"
      "INFO Model loading took 14.2474 GiB and 21.1 seconds\n",
      "vllm.log");
  LogCompareOptions options;
  options.tolerance = 0.002;
  EXPECT_EQ(
      term_of(compare_log(log, model_of("Qwen3-30B-A3B"), options), "weights on a rank").verdict,
      TermVerdict::kClose);
  const EngineLog old = parse_engine_log(
      "model weights take 14.25GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory "
      "takes 1.18GiB; the rest of the memory reserved for KV Cache is 55.68GiB.\n"
      "INFO # GPU blocks: 5000, # CPU blocks: 100\n",
      "v0.log");
  EXPECT_NEAR(old.activation_bytes->value, 1.18 * 1073741824.0, 1.0);
  EXPECT_DOUBLE_EQ(old.kv_blocks->value, 5000.0);
  EXPECT_TRUE(old.has_started);
}

TEST(EngineLog, OtherTextsAreRefused) {
  EXPECT_THROW((void)parse_engine_log("", "a.log"), Error);
  EXPECT_THROW((void)parse_engine_log("hello\nworld\n", "a.log"), Error);
  try {
    (void)parse_engine_log("nothing", "a.log");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "a.log: no line of a start-up log of vLLM, SGLang or llama.cpp in it");
  }
}

TEST(LogCompare, AnotherModelsLogIsRefusedByItsLayout) {
  const EngineLog log = parse_engine_log(
      "INFO non-default args: {'tensor_parallel_size': 7}\nINFO GPU KV cache size: 10 tokens\n",
      "a.log");
  EXPECT_THROW((void)compare_log(log, model_of("Mixtral-8x7B-v0.1"), {}), Error);
}

}  // namespace
}  // namespace moe::planner
