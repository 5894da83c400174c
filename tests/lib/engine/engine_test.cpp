// What an engine accepts, refuses, counts and forgets.

#include "lib/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/engine/isa_choice.hpp"
#include "tests/lib/engine/count_allocations.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using testing::all_logits;
using testing::checkpoint_dir;
using testing::EditableModel;
using ::testing::HasSubstr;
using testing::load_engine;
using testing::random_tokens;
using testing::small_options;

void expect_error(ErrorCode code, const std::string& mention, const std::function<void()>& run) {
  try {
    run();
    ADD_FAILURE() << "no error, expected one that mentions " << mention;
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(mention));
  }
}

class EngineTest : public ::testing::Test {
 protected:
  model::BoundModel model_ = model::bind_checkpoint(checkpoint_dir("qwen3moe-a"));
};

TEST_F(EngineTest, RefusesOptionsThatCannotRun) {
  const auto refuse = [&](const std::string& mention, const EngineOptions& options) {
    expect_error(ErrorCode::kUsage, mention, [&] { load_engine(model_, options); });
  };
  EngineOptions options = small_options(16);
  options.num_threads = 0;
  refuse("threads", options);
  options = small_options(16, 0);
  refuse("sequences", options);
  options = small_options(0);
  refuse("context", options);
  options = small_options(model_.config.max_position_embeddings + 1);
  refuse("max_position_embeddings", options);
  options = small_options(16);
  options.max_batch_tokens = 0;
  refuse("tokens per pass", options);
  options.max_batch_tokens = std::int64_t{1} << 60;
  refuse("tokens per pass", options);
  options = small_options(16, (1 << 16) + 1);
  refuse("sequences", options);
  options = small_options(16);
  options.top_k_override = 9;
  refuse("1 to 8", options);
}

TEST_F(EngineTest, GroupsLimitTheExpertsPerToken) {
  const model::BoundModel grouped = model::bind_checkpoint(checkpoint_dir("dsv3-a"));
  EngineOptions options = small_options(16);
  options.top_k_override = 9;  // 2 groups of 4 experts are kept
  expect_error(ErrorCode::kUsage, "1 to 8", [&] { load_engine(grouped, options); });
  const model::BoundModel dense = model::bind_checkpoint(checkpoint_dir("llama-dense-a"));
  options.top_k_override = 1;
  expect_error(ErrorCode::kUsage, "dense", [&] { load_engine(dense, options); });
}

TEST_F(EngineTest, RefusesBatchesBeforeAnythingChanges) {
  Engine engine = load_engine(model_, small_options(8, 2));
  const std::vector<std::int32_t> tokens = random_tokens(5, model_.config.vocab_size, 1);
  const std::vector<std::int32_t> unknown = {1, model_.config.vocab_size};
  const auto refuse = [&](const std::string& mention, const std::vector<BatchEntry>& batch) {
    expect_error(ErrorCode::kUsage, mention, [&] { engine.forward(batch); });
    EXPECT_EQ(engine.length(0), 0);
    EXPECT_EQ(engine.length(1), 0);
  };
  refuse("at least one", {});
  refuse("sequence 2", {{0, tokens}, {2, tokens}});
  refuse("sequence -1", {{0, tokens}, {-1, tokens}});
  refuse("twice", {{0, tokens}, {0, tokens}});
  refuse("no tokens", {{0, tokens}, {1, {}}});
  refuse("token id 320", {{0, tokens}, {1, unknown}});
  const std::vector<std::int32_t> too_long = random_tokens(9, model_.config.vocab_size, 1);
  refuse("9 tokens exceed the context of 8", {{0, tokens}, {1, too_long}});
  engine.forward(std::vector<BatchEntry>{{0, tokens}});
  EXPECT_EQ(engine.length(0), 5);
}

TEST_F(EngineTest, RefusesMoreMemoryThanAllowedBeforeAllocating) {
  EngineOptions options = small_options(64);
  const MemoryEstimate estimate = Engine::estimate(model_.config, model_, options);
  options.max_memory_bytes = estimate.total_bytes();
  EXPECT_EQ(load_engine(model_, options).memory().total_bytes(), estimate.total_bytes());
  options.max_memory_bytes = estimate.total_bytes() - 1;
  expect_error(ErrorCode::kRuntime, "GiB allowed", [&] { load_engine(model_, options); });
  // A cache of petabytes of address space must not even be tried.
  model::BoundModel vast = model_;
  vast.config.max_position_embeddings = std::int64_t{1} << 40;
  options = small_options(std::int64_t{1} << 40, 1 << 16);
  expect_error(ErrorCode::kRuntime, "GiB available", [&] { load_engine(vast, options); });
}

TEST_F(EngineTest, RefusesWeightsThatAreNotFinite) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    EditableModel editable("qwen3moe-a");
    model::MatrixView& view = editable.model.layers[2].experts[5].up;
    editable.edit(view, [&](std::int64_t row, std::int64_t col, float old) {
      return row == view.rows - 1 && col == 17 ? value : old;
    });
    expect_error(ErrorCode::kInput, view.name,
                 [&] { load_engine(editable.model, small_options(16)); });
  }
}

TEST_F(EngineTest, AnInterruptStopsTheLoad) {
  NullProgress progress;
  Interrupt interrupt;
  interrupt.request();
  expect_error(ErrorCode::kRuntime, "interrupted", [&] {
    static_cast<void>(Engine::load(model_, small_options(16), progress, interrupt));
  });
}

TEST_F(EngineTest, ProgressOfTheLoadReachesItsTotal) {
  class Recorder final : public Progress {
   public:
    void begin(std::string_view, std::int64_t total, std::string_view unit) override {
      total_ = total;
      EXPECT_EQ(unit, "B");
    }
    void update(std::int64_t done) override {
      EXPECT_GE(done, done_);
      done_ = done;
    }
    void end() override { is_ended_ = true; }
    std::int64_t total_ = 0;
    std::int64_t done_ = 0;
    bool is_ended_ = false;
  };
  Recorder progress;
  const Interrupt interrupt;
  const Engine engine = Engine::load(model_, small_options(16), progress, interrupt);
  EXPECT_GT(progress.total_, 0);
  EXPECT_EQ(progress.done_, progress.total_);
  EXPECT_TRUE(progress.is_ended_);
}

TEST_F(EngineTest, TruncationForgetsExactlyTheTail) {
  Engine engine = load_engine(model_, small_options(32));
  const std::vector<std::int32_t> tokens = random_tokens(20, model_.config.vocab_size, 5);
  const std::vector<float> expected = all_logits(engine, 0, tokens);
  engine.truncate(0, 11);
  EXPECT_EQ(engine.length(0), 11);
  const auto tail = std::span(tokens).subspan(11);
  const std::vector<float> again = all_logits(engine, 0, tail);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), expected.end() - std::ssize(again)));
  engine.reset(0);
  EXPECT_EQ(all_logits(engine, 0, tokens), expected);
}

// Phi-3.5-MoE: short factors up to 32 positions, long ones beyond. A sequence that grows over the
// border, or is cut back below it, must equal one that was run in one go.
TEST(LongRope, SequencesCrossTheBorderAsIfRunAtOnce) {
  const model::BoundModel model = model::bind_checkpoint(checkpoint_dir("phimoe-a"));
  ASSERT_EQ(model.config.attention.rope.original_max_position_embeddings, 32);
  Engine engine = load_engine(model, small_options(64, 2));
  const std::vector<std::int32_t> tokens = random_tokens(40, model.config.vocab_size, 6);
  const auto last_logits = [&](SequenceId sequence, std::span<const std::int32_t> part) {
    const BatchEntry entry{sequence, part, false};
    const std::span<const float> logits = engine.forward({&entry, 1});
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto text = std::span<const std::int32_t>(tokens);
  const std::vector<float> short_run = last_logits(0, text.first(32));
  engine.reset(0);
  const std::vector<float> long_run = last_logits(0, text);

  last_logits(1, text.first(20));
  EXPECT_EQ(last_logits(1, text.subspan(20, 12)), short_run);
  EXPECT_EQ(last_logits(1, text.subspan(32)), long_run);
  engine.truncate(1, 31);
  EXPECT_EQ(last_logits(1, text.subspan(31, 1)), short_run);
}

TEST_F(EngineTest, ObserversChangeNoBits) {
  class Counter final : public TensorObserver, public RoutingObserver {
   public:
    void on_tensor(std::string_view, int, const float*, std::int64_t, std::int64_t) override {
      ++num_tensors;
    }
    void on_routing(int layer, std::int64_t num_tokens, int, const std::int32_t*, const float*,
                    const SequenceId* sequences, const std::int64_t* positions) override {
      for (std::int64_t i = 0; i < num_tokens; ++i) ++seen[{layer, sequences[i], positions[i]}];
    }
    int num_tensors = 0;
    std::map<std::tuple<int, SequenceId, std::int64_t>, int> seen;
  };
  Engine engine = load_engine(model_, small_options(32, 2));
  const std::vector<std::int32_t> a = random_tokens(9, model_.config.vocab_size, 7);
  const std::vector<std::int32_t> b = random_tokens(4, model_.config.vocab_size, 8);
  const std::vector<BatchEntry> batch = {{0, a}, {1, b}};
  const auto run = [&] {
    engine.reset(0);
    engine.reset(1);
    const std::span<const float> logits = engine.forward(batch);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> plain = run();
  Counter counter;
  engine.set_routing_observer(&counter);
  EXPECT_EQ(run(), plain);
  EXPECT_EQ(counter.seen.size(), 13U * 2U);  // two of the three layers route, every token once
  for (const auto& [key, count] : counter.seen) EXPECT_EQ(count, 1);
  engine.set_tensor_observer(&counter);
  EXPECT_EQ(run(), plain);
  EXPECT_GT(counter.num_tensors, 10);
}

TEST_F(EngineTest, StatsCountWhatWasDone) {
  Engine engine = load_engine(model_, small_options(32));
  const std::vector<std::int32_t> tokens = random_tokens(10, model_.config.vocab_size, 9);
  all_logits(engine, 0, tokens);
  ForwardStats stats = engine.last_stats();
  EXPECT_EQ(stats.num_tokens, 10);
  const std::int64_t top_k = model_.config.moe.top_k;
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const auto& counts = stats.expert_tokens[layer];
    const std::int64_t expected = model_.config.layers[layer].is_moe ? 10 * top_k : 0;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), expected);
    EXPECT_EQ(std::ssize(counts) - std::count(counts.begin(), counts.end(), 0),
              stats.distinct_experts[layer]);
  }
  const double stages = std::accumulate(stats.stage_s.begin(), stats.stage_s.end(), 0.0);
  EXPECT_GT(stages, 0.0);
  EXPECT_LE(stages, stats.wall_s);

  // One more token touches top_k experts in each of the two MoE layers and everything else once.
  const std::int32_t token = 3;
  const BatchEntry entry{0, {&token, 1}, false};
  engine.forward({&entry, 1});
  stats = engine.last_stats();
  const std::int64_t hidden = model_.config.hidden_size;
  const std::int64_t expert = 3 * model_.config.moe.expert_intermediate_size * hidden * 2;
  EXPECT_EQ(stats.expert_weight_bytes_read, 2 * top_k * expert);
  EXPECT_EQ(stats.distinct_experts, (std::vector<std::int32_t>{3, 0, 3}));
  const model::AttentionConfig& attention = model_.config.attention;
  const std::int64_t q = attention.num_heads * attention.head_dim;
  const std::int64_t kv = attention.num_kv_heads * attention.head_dim;
  const std::int64_t matrices = 3 * (2 * q + 2 * kv) * hidden +
                                3 * model_.config.intermediate_size * hidden +
                                model_.config.vocab_size * hidden;
  // A router of 8 experts fills half a panel of 16 rows.
  const std::int64_t routers = 2 * 16 * hidden * 4;
  EXPECT_EQ(stats.weight_bytes_read, 2 * matrices + routers + stats.expert_weight_bytes_read);
  EXPECT_EQ(stats.kv_bytes_read, 3 * 11 * 2 * kv * 4);
  const std::int64_t products = matrices + routers / 8 + stats.expert_weight_bytes_read / 2;
  EXPECT_EQ(stats.flops, 2 * products + 3 * 2 * 2 * q * 11);
}

TEST_F(EngineTest, TopKOverrideChangesTheExpertsPerToken) {
  EngineOptions options = small_options(32);
  options.top_k_override = 1;
  Engine engine = load_engine(model_, options);
  all_logits(engine, 0, random_tokens(10, model_.config.vocab_size, 9));
  const auto& counts = engine.last_stats().expert_tokens[0];
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 10);
}

// The same sums in the same order; only the activation function is another one.
TEST_F(EngineTest, UnfusedExpertsGiveTheSameLogits) {
  for (const char* name : {"qwen3moe-a", "gptoss-a", "llama4-a", "qwen2moe-a"}) {
    const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
    const std::vector<std::int32_t> tokens = random_tokens(20, model.config.vocab_size, 12);
    EngineOptions options = small_options(32);
    options.moe_path = MoePath::kUnfused;
    Engine engine = load_engine(model, options);
    const std::vector<float> unfused = all_logits(engine, 0, tokens);
    engine.reset(0);
    engine.set_moe_path(MoePath::kFused);
    const std::vector<float> fused = all_logits(engine, 0, tokens);
    options.moe_path = MoePath::kFused;
    Engine other = load_engine(model, options);
    EXPECT_LT(other.memory().workspace_bytes, engine.memory().workspace_bytes);
    EXPECT_EQ(all_logits(other, 0, tokens), fused) << name;
    ASSERT_EQ(unfused.size(), fused.size());
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_NEAR(unfused[i], fused[i], 1e-4F * std::max(1.0F, std::fabs(fused[i]))) << name;
    }
  }
}

TEST_F(EngineTest, ForwardDoesNotAllocate) {
  using kernels::ActivationFormat;
  struct Case {
    std::string name;
    MoePath path = MoePath::kFused;
    ActivationFormat activations = ActivationFormat::kF32;
  };
  std::vector<Case> cases;
  for (const std::string& name : testing::golden_checkpoints()) cases.push_back({name});
  cases.insert(cases.end(), {{"dbrx-a", MoePath::kUnfused},
                             {"qwen3moe-a", MoePath::kFused, ActivationFormat::kBf16},
                             {"ct-w8a8", MoePath::kFused, ActivationFormat::kInt8},
                             {"qwen3moe-gguf-q4_k_m", MoePath::kFused, ActivationFormat::kInt8},
                             {"mixtral-gguf-q8_0", MoePath::kUnfused, ActivationFormat::kInt8}});
  for (const auto& [name, path, activations] : cases) {
    const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
    EngineOptions options = small_options(64, 3);
    options.moe_path = path;
    options.activations = activations;
    options.num_threads = 2;
    options.max_batch_tokens = 24;
    Engine engine = load_engine(model, options);
    const std::vector<std::int32_t> tokens = random_tokens(80, model.config.vocab_size, 2);
    const auto run = [&](std::size_t seed) {
      for (SequenceId sequence = 0; sequence < 3; ++sequence) engine.reset(sequence);
      const std::array<BatchEntry, 3> prefill = {
          BatchEntry{0, std::span(tokens).subspan(seed, 30), false},
          BatchEntry{1, std::span(tokens).subspan(seed + 5, 1), false},
          BatchEntry{2, std::span(tokens).subspan(seed + 9, 17), false}};
      engine.forward(prefill);
      const std::array<BatchEntry, 3> decode = {
          BatchEntry{0, std::span(tokens).subspan(seed, 1), false},
          BatchEntry{1, std::span(tokens).subspan(seed + 1, 1), false},
          BatchEntry{2, std::span(tokens).subspan(seed + 2, 1), false}};
      engine.forward(decode);
    };
    run(0);
    const std::int64_t before = testing::num_allocations();
    for (std::size_t seed = 1; seed < 40; ++seed) run(seed);
    EXPECT_EQ(testing::num_allocations(), before) << name;
  }
}

TEST(IsaChoice, TakesTheBestLevelAndSaysWhy) {
  const IsaChoice best = choose_isa(std::nullopt);
  EXPECT_EQ(best.isa, testing::runnable_isas().back());
  EXPECT_THAT(best.reason, HasSubstr(kernels::isa_name(best.isa)));
  EXPECT_EQ(choose_isa(kernels::Isa::kScalar).isa, kernels::Isa::kScalar);
  for (int level = 0; level < kernels::kNumIsas; ++level) {
    const auto isa = static_cast<kernels::Isa>(level);
    if (kernels::isa_supported(isa) && kernels::kernel_table(isa) != nullptr) continue;
    expect_error(ErrorCode::kUnavailable, kernels::isa_name(isa),
                 [&] { static_cast<void>(choose_isa(isa)); });
  }
}

}  // namespace
}  // namespace moe::engine
