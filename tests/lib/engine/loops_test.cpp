// generate, evaluate, run_batch and the warm-up: what they do around the forward pass.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/engine/evaluate.hpp"
#include "lib/engine/generate.hpp"
#include "lib/engine/run_batch.hpp"
#include "lib/model/safetensors.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using testing::checkpoint_dir;
using testing::EditableModel;
using testing::load_engine;
using testing::random_tokens;
using testing::small_options;

// Every look at the clock takes a second.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override { return ticks_++; }

 private:
  mutable double ticks_ = 100.0;
};

// Requests an interrupt after so many looks.
class InterruptingClock final : public Clock {
 public:
  InterruptingClock(Interrupt& interrupt, int looks) : interrupt_(interrupt), looks_(looks) {}
  [[nodiscard]] double now_s() const override {
    if (--looks_ == 0) interrupt_.request();
    return 0.0;
  }

 private:
  Interrupt& interrupt_;
  mutable int looks_;
};

class LoopsTest : public ::testing::Test {
 protected:
  LoopsTest() {
    const model::SafetensorsFile golden(checkpoint_dir("mixtral-a") / "golden.safetensors");
    prompt_ = model::to_i32(golden.at("input_ids"));
    greedy_ = model::to_i32(golden.at("greedy_ids"));
    ragged_ = model::to_i32(golden.at("ragged.0.input_ids"));
    ragged_greedy_ = model::to_i32(golden.at("ragged.0.greedy_ids"));
  }

  GenerateResult run_generate(Engine& engine, const GenerateOptions& options,
                              const TokenCallback& callback = {}) {
    return generate(engine, 0, prompt_, options, callback, clock_, interrupt_);
  }

  EditableModel editable_{"mixtral-a"};
  model::BoundModel& model_ = editable_.model;
  std::vector<std::int32_t> prompt_, greedy_, ragged_, ragged_greedy_;
  TickingClock clock_;
  Interrupt interrupt_;
};

TEST_F(LoopsTest, GenerateFollowsTheGoldenTokens) {
  Engine engine = load_engine(model_, small_options(64));
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.ignore_eos = true;
  std::vector<std::int32_t> streamed;
  const GenerateResult result = run_generate(engine, options, [&](std::int32_t token) {
    streamed.push_back(token);
    return true;
  });
  EXPECT_EQ(result.token_ids, greedy_);
  EXPECT_EQ(streamed, greedy_);
  EXPECT_EQ(result.stop, StopReason::kLength);
  ASSERT_EQ(result.token_times_s.size(), 16U);
  EXPECT_EQ(result.token_times_s[0], 1.0);
  EXPECT_EQ(result.token_times_s[15], 16.0);
}

TEST_F(LoopsTest, GenerateStopsForEveryReason) {
  GenerateOptions options;
  options.max_new_tokens = 16;
  {
    model_.config.eos_token_ids = {greedy_[5]};
    const auto first = std::find(greedy_.begin(), greedy_.end(), greedy_[5]);
    Engine engine = load_engine(model_, small_options(64));
    const GenerateResult result = run_generate(engine, options);
    EXPECT_EQ(result.stop, StopReason::kEos);
    EXPECT_EQ(std::ssize(result.token_ids), first - greedy_.begin() + 1);
    options.ignore_eos = true;
    EXPECT_EQ(run_generate(engine, options).stop, StopReason::kLength);
  }
  Engine engine = load_engine(model_, small_options(43));
  // 40 prompt tokens, 3 fed back, and one more that needs no place.
  const GenerateResult full = run_generate(engine, options);
  EXPECT_EQ(full.stop, StopReason::kContext);
  EXPECT_EQ(full.token_ids.size(), 4U);
  EXPECT_EQ(run_generate(engine, options, [](std::int32_t) { return false; }).stop,
            StopReason::kCallback);
  interrupt_.request();
  const GenerateResult none = run_generate(engine, options);
  EXPECT_EQ(none.stop, StopReason::kInterrupted);
  EXPECT_TRUE(none.token_ids.empty());
}

TEST_F(LoopsTest, SampledTextDependsOnTheSeedAlone) {
  Engine engine = load_engine(model_, small_options(64));
  GenerateOptions options;
  options.max_new_tokens = 12;
  options.ignore_eos = true;
  options.sampling.temperature = 1.5;
  options.sampling.seed = 3;
  const std::vector<std::int32_t> first = run_generate(engine, options).token_ids;
  EXPECT_EQ(run_generate(engine, options).token_ids, first);
  options.sampling.seed = 4;
  EXPECT_NE(run_generate(engine, options).token_ids, first);
}

TEST_F(LoopsTest, RunBatchGivesEverySequenceItsOwnText) {
  EngineOptions engine_options = small_options(64, 3);
  engine_options.num_threads = 2;
  Engine engine = load_engine(model_, engine_options);
  const std::vector<BatchRequest> requests = {{prompt_, 16}, {ragged_, 8}, {prompt_, 1}};
  const RunBatchResult result = run_batch(engine, requests, {}, clock_, interrupt_);
  EXPECT_FALSE(result.is_partial);
  EXPECT_EQ(result.requests[0].token_ids, greedy_);
  EXPECT_EQ(result.requests[1].token_ids, ragged_greedy_);
  EXPECT_EQ(result.requests[2].token_ids, std::vector<std::int32_t>{greedy_[0]});
  ASSERT_EQ(result.steps.size(), 15U);
  for (std::size_t step = 0; step < 15; ++step) {
    EXPECT_EQ(result.steps[step].num_sequences, step < 7 ? 2 : 1);
    EXPECT_GT(result.steps[step].expert_weight_bytes_read, 0);
    EXPECT_LT(result.steps[step].expert_weight_bytes_read, result.steps[step].weight_bytes_read);
    for (const std::int32_t distinct : result.steps[step].distinct_experts) {
      EXPECT_GE(distinct, 2);
      EXPECT_LE(distinct, 4);
    }
  }
  // The times add up, and every token has one.
  EXPECT_DOUBLE_EQ(result.prefill_s + result.decode_s, result.total_s);
  for (const RequestResult& request : result.requests) {
    EXPECT_EQ(request.token_times_s.size(), request.token_ids.size());
    EXPECT_TRUE(std::is_sorted(request.token_times_s.begin(), request.token_times_s.end()));
    EXPECT_LE(request.token_times_s.front(), result.prefill_s);
    EXPECT_LE(request.token_times_s.back(), result.total_s);
  }
  EXPECT_EQ(result.prefill.num_tokens, std::ssize(prompt_) * 2 + std::ssize(ragged_));
  EXPECT_EQ(result.decode.num_tokens, 15 + 7);
  const auto& counts = result.decode.expert_tokens[0];
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 2 * 22);
}

// On a busy machine time passes between any two readings.
TEST_F(LoopsTest, TheLastTokenEndsAPassAndTheBatch) {
  Engine engine = load_engine(model_, small_options(64, 2));
  const TickingClock clock;
  for (const std::int64_t output : {1, 4}) {
    const std::vector<BatchRequest> requests = {{prompt_, output}, {prompt_, output}};
    const RunBatchResult result = run_batch(engine, requests, {}, clock, interrupt_);
    const std::vector<double>& times_s = result.requests[1].token_times_s;
    EXPECT_EQ(times_s.front(), result.prefill_s);
    EXPECT_EQ(times_s.back(), result.total_s);
    EXPECT_EQ(result.decode_s, result.total_s - result.prefill_s);
    for (std::size_t step = 0; step < result.steps.size(); ++step) {
      EXPECT_EQ(result.steps[step].begin_s + result.steps[step].duration_s, times_s[step + 1]);
    }
  }
}

TEST_F(LoopsTest, TheClockOfABatchStandsStillWhileCoresAreProbed) {
  Engine engine = load_engine(model_, small_options(64, 1));
  FakeClock clock;
  CoreWatch watch([&clock] {
    clock.advance_s(0.5);
    return WidthReading{3.6, 0};
  });
  RunBatchOptions options;
  options.core_watch = &watch;
  const std::vector<BatchRequest> requests = {{prompt_, 16}};
  const RunBatchResult result = run_batch(engine, requests, options, clock, interrupt_);
  EXPECT_EQ(result.requests[0].token_ids, greedy_);
  // Nothing else moves this clock: the passes take no time, so none is old enough for a new probe.
  EXPECT_EQ(result.probes.size(), 2U);
  EXPECT_EQ(result.probe_s, 0.5);
  EXPECT_EQ(result.total_s, 0.0);
  EXPECT_EQ(result.probes_of(result.prefill_probes).size(), 2U);
  for (const DecodeStep& step : result.steps) EXPECT_EQ(result.probes_of(step.probes).size(), 2U);
}

TEST_F(LoopsTest, EveryStepLiesBetweenTwoProbes) {
  Engine engine = load_engine(model_, small_options(64, 1));
  CoreWatch watch([] { return WidthReading{3.6, 0}; });
  RunBatchOptions options;
  options.core_watch = &watch;
  const std::vector<BatchRequest> requests = {{prompt_, 16}};
  const RunBatchResult result = run_batch(engine, requests, options, clock_, interrupt_);
  // By this clock every step is long: one probe before, one after each pass, one at the end.
  ASSERT_EQ(result.probes.size(), 18U);
  EXPECT_EQ(result.prefill_probes.first, 0U);
  EXPECT_EQ(result.prefill_probes.count, 2U);
  for (std::size_t step = 0; step < result.steps.size(); ++step) {
    EXPECT_EQ(result.steps[step].probes.first, step + 1);
    EXPECT_EQ(result.steps[step].probes.count, 2U);
    EXPECT_GT(result.steps[step].flops, 0);
    EXPECT_GT(result.steps[step].kv_bytes_read, 0);
  }
  for (const CoreProbe& probe : result.probes) EXPECT_EQ(probe.threads.size(), 1U);
  EXPECT_TRUE(run_batch(engine, requests, {}, clock_, interrupt_).probes.empty());
}

TEST_F(LoopsTest, RunBatchStopsAtTheEndOfTextWhenAsked) {
  model_.config.eos_token_ids = {greedy_[3]};
  const auto first = std::find(greedy_.begin(), greedy_.end(), greedy_[3]) - greedy_.begin();
  Engine engine = load_engine(model_, small_options(64, 1));
  RunBatchOptions options;
  options.ignore_eos = false;
  const std::vector<BatchRequest> requests = {{prompt_, 16}};
  const RunBatchResult result = run_batch(engine, requests, options, clock_, interrupt_);
  EXPECT_EQ(result.requests[0].stop, StopReason::kEos);
  EXPECT_EQ(std::ssize(result.requests[0].token_ids), first + 1);
  EXPECT_EQ(std::ssize(result.steps), first);
}

TEST_F(LoopsTest, AnInterruptedBatchKeepsWhatItHas) {
  Engine engine = load_engine(model_, small_options(64, 1));
  const std::vector<BatchRequest> requests = {{prompt_, 16}};
  Interrupt interrupt;
  const InterruptingClock clock(interrupt, 10);
  const RunBatchResult result = run_batch(engine, requests, {}, clock, interrupt);
  EXPECT_TRUE(result.is_partial);
  EXPECT_EQ(result.requests[0].stop, StopReason::kInterrupted);
  EXPECT_GT(result.requests[0].token_ids.size(), 1U);
  EXPECT_LT(result.requests[0].token_ids.size(), 16U);
  EXPECT_EQ(result.steps.size() + 1, result.requests[0].token_ids.size());
}

TEST_F(LoopsTest, RunBatchRefusesWhatDoesNotFit) {
  Engine engine = load_engine(model_, small_options(48, 2));
  const auto run = [&](const std::vector<BatchRequest>& requests) {
    static_cast<void>(run_batch(engine, requests, {}, clock_, interrupt_));
  };
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({{prompt_, 1}, {prompt_, 1}, {prompt_, 1}}), Error);
  EXPECT_THROW(run({{prompt_, 0}}), Error);
  EXPECT_THROW(run({{{}, 1}}), Error);
  EXPECT_THROW(run({{prompt_, 10}}), Error);
  EXPECT_NO_THROW(run({{prompt_, 9}}));  // the last token needs no place
}

TEST_F(LoopsTest, EvaluateScoresAllButTheFirstTokenOfEachWindow) {
  Engine engine = load_engine(model_, small_options(64));
  const std::vector<std::int32_t> text = random_tokens(101, model_.config.vocab_size, 1);
  std::vector<std::int32_t> bytes(101);
  std::iota(bytes.begin(), bytes.end(), 0);
  EvaluateOptions options;
  options.window_tokens = 20;
  NullProgress progress;
  const EvaluateResult result = evaluate(engine, text, bytes, options, progress, interrupt_);
  EXPECT_EQ(result.num_windows, 5);  // the last token stands alone
  EXPECT_EQ(result.num_tokens, 100);
  EXPECT_EQ(result.num_scored_tokens, 95);
  EXPECT_EQ(result.num_scored_bytes, 99 * 100 / 2 - (0 + 20 + 40 + 60 + 80));
  // The same from the logits, in the plain way.
  double nll = 0.0;
  for (std::size_t begin = 0; begin < 100; begin += 20) {
    engine.reset(0);
    const auto logits = testing::all_logits(engine, 0, std::span(text).subspan(begin, 20));
    const auto vocab = static_cast<std::size_t>(model_.config.vocab_size);
    for (std::size_t i = 0; i + 1 < 20; ++i) {
      double sum = 0.0;
      for (std::size_t v = 0; v < vocab; ++v) {
        sum += std::exp(static_cast<double>(logits[i * vocab + v]));
      }
      const auto target = static_cast<std::size_t>(text[begin + i + 1]);
      nll -= static_cast<double>(logits[i * vocab + target]) - std::log(sum);
    }
  }
  EXPECT_NEAR(result.nll_sum, nll, 1e-9 * nll);
  EXPECT_NEAR(result.perplexity(), std::exp(nll / 95.0), 1e-6);
}

TEST_F(LoopsTest, EvaluateRefusesAndStops) {
  Engine engine = load_engine(model_, small_options(64));
  NullProgress progress;
  const std::vector<std::int32_t> text = random_tokens(50, model_.config.vocab_size, 1);
  const auto run = [&](std::span<const std::int32_t> tokens, std::int64_t window) {
    EvaluateOptions options;
    options.window_tokens = window;
    return evaluate(engine, tokens, {}, options, progress, interrupt_);
  };
  EXPECT_THROW(static_cast<void>(run(std::span(text).first(1), 20)), Error);
  EXPECT_THROW(static_cast<void>(run(text, 65)), Error);
  EXPECT_THROW(static_cast<void>(run(text, 1)), Error);
  interrupt_.request();
  const EvaluateResult result = run(text, 20);
  EXPECT_TRUE(result.is_partial);
  EXPECT_EQ(result.num_windows, 0);
  EXPECT_EQ(result.perplexity(), 0.0);
}

TEST_F(LoopsTest, WarmUpTouchesEveryExpertOrSaysWhichShare) {
  EngineOptions engine_options = small_options(64);
  Engine engine = load_engine(model_, engine_options);
  const WarmUpResult result = warm_up_experts(engine, {}, SteadyClock(), interrupt_);
  EXPECT_TRUE(result.is_complete);
  EXPECT_THAT(result.coverage, ::testing::Each(1.0));
  EXPECT_EQ(engine.length(0), 0);

  // Two tokens reach at most four of eight experts.
  WarmUpOptions options;
  options.tokens_per_pass = 2;
  options.max_tokens = 2;
  const WarmUpResult part = warm_up_experts(engine, options, SteadyClock(), interrupt_);
  EXPECT_FALSE(part.is_complete);
  EXPECT_EQ(part.num_tokens, 2);
  for (const double share : part.coverage) {
    EXPECT_GE(share, 0.25);
    EXPECT_LE(share, 0.5);
  }
}

}  // namespace
}  // namespace moe::engine
