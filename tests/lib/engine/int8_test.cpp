// int8 activations through the engine: which products read them, that neither the level nor the
// threads change a bit of the products, and what the mode costs on the trained checkpoint.

#include <algorithm>
#include <cmath>
#include <list>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/engine/evaluate.hpp"
#include "lib/engine/gemm.hpp"
#include "lib/engine/pack_plan.hpp"
#include "lib/engine/sampler.hpp"
#include "lib/model/quantize.hpp"
#include "lib/model/tokenizer.hpp"
#include "tests/kernels/emulated.hpp"
#include "tests/lib/engine/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using testing::all_logits;
using testing::checkpoint_dir;
using testing::load_engine;
using testing::random_tokens;
using testing::small_options;

// The trained checkpoint with projections and experts rounded to int8 in groups of 32.
class TrainedInInt8 {
 public:
  TrainedInInt8() : model(model::bind_checkpoint(checkpoint_dir("tinymoe-qwen3"))) {
    for (model::LayerView& layer : model.layers) {
      for (model::MatrixView* view :
           {&layer.attention.q, &layer.attention.k, &layer.attention.v, &layer.attention.o}) {
        round(*view);
      }
      for (model::FfnView& expert : layer.experts) {
        for (model::MatrixView* view : {&expert.gate, &expert.up, &expert.down}) round(*view);
      }
    }
    model.has_copies = true;
  }

  model::BoundModel model;

 private:
  void round(model::MatrixView& view) {
    const std::int64_t code_bytes = model::quantized_code_bytes({}, view.cols);
    const std::int64_t scale_bytes = model::quantized_scale_bytes({}, view.cols);
    auto& codes = storage_.emplace_back(static_cast<std::size_t>(view.rows * code_bytes));
    auto& scales = storage_.emplace_back(static_cast<std::size_t>(view.rows * scale_bytes));
    std::vector<float> row(static_cast<std::size_t>(view.cols));
    for (std::int64_t r = 0; r < view.rows; ++r) {
      model::read_matrix_row(view, r, row.data());
      model::quantize_row(row, {}, codes.data() + r * code_bytes, scales.data() + r * scale_bytes);
    }
    view = model::quantized_view(view, {}, codes.data(), scales.data());
  }

  std::list<std::vector<std::byte>> storage_;
};

const model::BoundModel& trained_int8_model() {
  static const TrainedInInt8 trained;
  return trained.model;
}

std::vector<std::int32_t> text_tokens(const std::string& domain) {
  static const model::Tokenizer tokenizer =
      model::Tokenizer::load(checkpoint_dir("tinymoe-qwen3") / "tokenizer.json");
  return tokenizer.encode(test::read_file(checkpoint_dir("eval-text") / (domain + ".txt")), false);
}

EngineOptions in_mode(ActivationFormat activations) {
  EngineOptions options = small_options(512);
  options.activations = activations;
  return options;
}

// Rounding in blocks of 32 moves an activation by at most half a step, step / sqrt(12) on average,
// where the step is 1 / 127 of the largest of the block, and this at most sqrt(32) times their root
// mean square: the error of a block is at most sqrt(32) / 127 / sqrt(12) of its size. Six layers
// round the inputs of four products each, 24 independent roundings: about 5 times that of the
// spread of the logits; the bound is three times as much, as for bf16.
TEST(TrainedInt8, ActivationsStayWithinTheirRounding) {
  Engine exact = load_engine(trained_int8_model(), in_mode(ActivationFormat::kF32));
  Engine rounded = load_engine(trained_int8_model(), in_mode(ActivationFormat::kInt8));
  const std::vector<std::int32_t> ids = text_tokens("python");
  const auto window = std::span(ids).first(512);
  const std::vector<float> a = all_logits(exact, 0, window);
  const std::vector<float> b = all_logits(rounded, 0, window);
  double sum = 0.0;
  double squares = 0.0;
  double error_squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]);
    squares += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    error_squares += std::pow(static_cast<double>(a[i] - b[i]), 2);
  }
  const auto count = static_cast<double>(a.size());
  const double spread = std::sqrt(squares / count - std::pow(sum / count, 2));
  const double rounding = std::sqrt(32.0) / 127.0 / std::sqrt(12.0);
  const double error = std::sqrt(error_squares / count);
  RecordProperty("error_over_spread", fmt::format("{:.5f}", error / spread));
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 3.0 * 5.0 * rounding * spread);
}

TEST(TrainedInt8, ActivationsAgreeOnGreedyTokens) {
  Engine exact = load_engine(trained_int8_model(), in_mode(ActivationFormat::kF32));
  Engine rounded = load_engine(trained_int8_model(), in_mode(ActivationFormat::kInt8));
  std::int64_t num_tokens = 0;
  std::int64_t num_equal = 0;
  const auto vocab = static_cast<std::size_t>(trained_int8_model().config.vocab_size);
  for (const char* domain : {"english", "python", "c", "spanish"}) {
    const std::vector<std::int32_t> ids = text_tokens(domain);
    const auto window = std::span(ids).first(512);
    exact.reset(0);
    rounded.reset(0);
    const std::vector<float> a = all_logits(exact, 0, window);
    const std::vector<float> b = all_logits(rounded, 0, window);
    for (std::size_t row = 0; row < 512; ++row) {
      ++num_tokens;
      num_equal += argmax(std::span(a).subspan(row * vocab, vocab)) ==
                           argmax(std::span(b).subspan(row * vocab, vocab))
                       ? 1
                       : 0;
    }
  }
  const double agreement = static_cast<double>(num_equal) / static_cast<double>(num_tokens);
  RecordProperty("agreement", fmt::format("{:.4f}", agreement));
  EXPECT_GE(agreement, 0.95);
}

TEST(TrainedInt8, PerplexityIsWithinOnePercent) {
  std::vector<std::int32_t> ids = text_tokens("english");
  ids.resize(std::min<std::size_t>(ids.size(), 8 * 512));
  NullProgress progress;
  const Interrupt interrupt;
  const auto perplexity = [&](ActivationFormat activations) {
    Engine engine = load_engine(trained_int8_model(), in_mode(activations));
    return evaluate(engine, ids, {}, {}, progress, interrupt).perplexity();
  };
  const double exact = perplexity(ActivationFormat::kF32);
  const double rounded = perplexity(ActivationFormat::kInt8);
  RecordProperty("perplexity_ratio", fmt::format("{:.8f}", rounded / exact));
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 1e-2 * exact);
}

// A product of the engine: a matrix of codes, rows of activations.
struct Int8Product {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  model::MatrixView view;
  AlignedBytes packed;
  kernels::PackedMatrix weight;
  ActivationBuffer x;

  Int8Product(std::int32_t bits, std::int64_t rows, std::int64_t cols, std::int64_t num_rows)
      : x(num_rows, cols, false) {
    Rng rng(77);
    std::vector<float> row(static_cast<std::size_t>(cols));
    const std::int64_t code_bytes = model::quantized_code_bytes({bits}, cols);
    const std::int64_t scale_bytes = model::quantized_scale_bytes({bits}, cols);
    codes.resize(static_cast<std::size_t>(rows * code_bytes));
    scales.resize(static_cast<std::size_t>(rows * scale_bytes));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (float& value : row) value = static_cast<float>(rng.next_normal());
      model::quantize_row(row, {bits}, codes.data() + r * code_bytes,
                          scales.data() + r * scale_bytes);
    }
    model::MatrixView shape;
    shape.rows = rows;
    shape.cols = cols;
    view = model::quantized_view(shape, {bits}, codes.data(), scales.data());
    PackPlan plan;
    plan.add({whole(view)}, PackOrder::kSequential, &weight);
    ThreadPool pool(1);
    NullProgress progress;
    packed = plan.execute(pool, false, progress, Interrupt());
    for (std::int64_t r = 0; r < num_rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) x.f32(r)[c] = static_cast<float>(rng.next_normal());
    }
  }

  [[nodiscard]] std::vector<float> run(const kernels::KernelTable& kernels,
                                       ActivationFormat activations, int num_threads,
                                       std::int64_t num_rows) {
    ThreadPool pool(num_threads);
    ForwardStats stats;
    Exec exec;
    exec.pool = &pool;
    exec.kernels = &kernels;
    exec.activations = activations;
    exec.stats = &stats;
    Int8Buffer::RowSize size;
    size.cover(weight);
    Int8Buffer buffer(num_rows, size);
    std::vector<float> y(static_cast<std::size_t>(num_rows * weight.rows));
    const LinearCall call{&weight,    with_int8(exec, weight, x.view(), num_rows, buffer),
                          nullptr,    num_rows,
                          nullptr,    y.data(),
                          weight.rows};
    run_linear(exec, {&call, 1});
    return y;
  }
};

// Levels, threads and batches: integers have one sum.
TEST(Int8Linear, HasTheSameBitsAtEveryLevelWithAnyThreads) {
  for (const std::int32_t bits : {8, 4}) {
    Int8Product product(bits, 200, 352, 120);
    const kernels::KernelTable& scalar = *kernels::kernel_table(kernels::Isa::kScalar);
    const std::vector<float> expected = product.run(scalar, ActivationFormat::kInt8, 1, 120);
    EXPECT_NE(product.run(scalar, ActivationFormat::kF32, 1, 120), expected);
    std::vector<const kernels::KernelTable*> tables = {&kernels::emulated_avx512_table(),
                                                       &kernels::emulated_avx512_bf16_table(),
                                                       &kernels::emulated_amx_table()};
    for (const kernels::Isa isa : testing::runnable_isas()) {
      tables.push_back(kernels::kernel_table(isa));
    }
    for (const kernels::KernelTable* table : tables) {
      for (const int num_threads : {1, 2, 3, 7}) {
        EXPECT_EQ(product.run(*table, ActivationFormat::kInt8, num_threads, 120), expected)
            << kernels::isa_name(table->isa) << ", " << num_threads << " threads";
      }
      const std::vector<float> few = product.run(*table, ActivationFormat::kInt8, 2, 3);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), expected.begin()));
    }
  }
}

// Per-channel weights, groups, zero points, offsets, two group sizes in one layer.
TEST(Int8Engine, RunsEveryFamilyAndLayoutOfCodes) {
  for (const char* name :
       {"ct-w8a8", "ct-w4a16", "awq-a", "gptq-v1", "mixtral-gguf-q8_0", "mixtral-gguf-q6_k",
        "mixtral-gguf-q4_k", "qwen3moe-gguf-q4_k_m", "qwen3moe-gguf-q4_0"}) {
    const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
    EngineOptions options = small_options(48);
    Engine exact = load_engine(model, options);
    options.activations = ActivationFormat::kInt8;
    Engine rounded = load_engine(model, options);
    const std::vector<std::int32_t> tokens = random_tokens(40, model.config.vocab_size, 3);
    const std::vector<float> a = all_logits(exact, 0, tokens);
    const std::vector<float> b = all_logits(rounded, 0, tokens);
    EXPECT_NE(a, b) << name;
    // Of the tokens, half at least are not moved by another choice of experts.
    const std::size_t vocab = a.size() / tokens.size();
    std::vector<double> distances;
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      double difference = 0.0;
      double size = 0.0;
      for (std::size_t i = token * vocab; i < (token + 1) * vocab; ++i) {
        difference += std::pow(static_cast<double>(a[i] - b[i]), 2);
        size += std::pow(static_cast<double>(a[i]), 2);
      }
      distances.push_back(std::sqrt(difference / size));
    }
    std::nth_element(distances.begin(), distances.begin() + 20, distances.end());
    EXPECT_LT(distances[20], 0.1) << name;
  }
}

// What no kernel multiplies as int8 stays as it is: matrices in another column order, 16 bits.
TEST(Int8Engine, LeavesOtherWeightsAlone) {
  for (const char* name : {"gptq-desc", "dsv3-a", "llama4-a"}) {
    const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
    EngineOptions options = small_options(48);
    Engine exact = load_engine(model, options);
    options.activations = ActivationFormat::kInt8;
    Engine asked = load_engine(model, options);
    const std::vector<std::int32_t> tokens = random_tokens(40, model.config.vocab_size, 3);
    EXPECT_EQ(all_logits(asked, 0, tokens), all_logits(exact, 0, tokens)) << name;
  }
}

TEST(Int8Engine, FusedAndUnfusedAgree) {
  for (const char* name : {"ct-w8a8", "mixtral-gguf-q8_0"}) {
    const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
    EngineOptions options = small_options(48);
    options.activations = ActivationFormat::kInt8;
    options.moe_path = MoePath::kUnfused;
    Engine engine = load_engine(model, options);
    const std::vector<std::int32_t> tokens = random_tokens(40, model.config.vocab_size, 3);
    const std::vector<float> unfused = all_logits(engine, 0, tokens);
    engine.set_moe_path(MoePath::kFused);
    engine.reset(0);
    const std::vector<float> fused = all_logits(engine, 0, tokens);
    // An activation function that differs in its last bit may turn a code by one.
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < fused.size(); ++i) {
      difference += std::pow(static_cast<double>(fused[i] - unfused[i]), 2);
      size += std::pow(static_cast<double>(fused[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 0.01) << name;
  }
}

}  // namespace
}  // namespace moe::engine
