// Goal: attention is the softmax-weighted mean of the visible values, with windows, sinks and
// grouped heads, and a query has the same bits whatever else is in the call. Method: every level
// against the formula in double.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/aligned_buffer.hpp"
#include "tests/kernels/levels.hpp"
#include "tests/kernels/matrices.hpp"
#include "tests/kernels/tolerance.hpp"

namespace moe::kernels {
namespace {

struct AttentionShape {
  const char* name;
  std::int64_t num_queries;
  std::int64_t num_heads;
  std::int64_t first_position;
  std::int64_t window;
  std::int64_t k_dim;
  std::int64_t v_dim;
  bool has_sinks;
};

constexpr AttentionShape kShapes[] = {
    {"first token", 1, 1, 0, 0, 64, 64, false},
    {"decode", 1, 1, 200, 0, 128, 128, false},
    {"decode, grouped heads", 1, 8, 130, 0, 128, 128, false},
    {"prefill", 70, 1, 0, 0, 64, 64, false},
    {"prefill, grouped heads", 33, 3, 0, 0, 32, 32, false},
    {"chunk after a prefix", 20, 2, 63, 0, 16, 16, false},
    {"window", 40, 2, 100, 37, 64, 64, false},
    {"window of one key", 5, 1, 70, 1, 24, 24, false},
    {"window longer than the sequence", 10, 1, 3, 500, 24, 24, false},
    {"window and sinks", 30, 4, 90, 64, 64, 64, true},
    {"sinks", 9, 2, 0, 0, 64, 64, true},
    {"latent attention", 7, 3, 75, 0, 192, 128, false},
    {"long latent attention", 2, 2, 100, 0, 576, 512, false},
    {"odd dims", 6, 2, 64, 0, 21, 19, true},
    {"tiny dims", 3, 1, 66, 0, 1, 1, false},
};

struct Data {
  Data(const AttentionShape& shape, Rng& rng)
      : k_stride(shape.k_dim + 3),
        v_stride(shape.v_dim + 1),
        num_keys(shape.first_position + shape.num_queries),
        q(random_floats(rng, shape.num_queries * shape.num_heads * shape.k_dim)),
        k(random_floats(rng, (num_keys - 1) * k_stride + shape.k_dim)),
        v(random_floats(rng, (num_keys - 1) * v_stride + shape.v_dim)),
        sinks(random_floats(rng, shape.num_heads)),
        scratch(attention_scratch_floats(shape.num_heads, num_keys - 1, shape.v_dim)) {}

  [[nodiscard]] AttentionArgs args(const AttentionShape& shape, std::vector<float>& out) {
    out.assign(static_cast<std::size_t>(shape.num_queries * shape.num_heads * shape.v_dim), -7.0F);
    return {.q = q.data(),
            .q_stride = shape.num_heads * shape.k_dim,
            .q_head_stride = shape.k_dim,
            .num_queries = shape.num_queries,
            .num_heads = shape.num_heads,
            .first_position = shape.first_position,
            .window = shape.window,
            .k = k.data(),
            .k_stride = k_stride,
            .k_dim = shape.k_dim,
            .v = v.data(),
            .v_stride = v_stride,
            .v_dim = shape.v_dim,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.k_dim))),
            .sinks = shape.has_sinks ? sinks.data() : nullptr,
            .out = out.data(),
            .out_stride = shape.num_heads * shape.v_dim,
            .out_head_stride = shape.v_dim,
            .scratch = scratch.data()};
  }

  std::int64_t k_stride;
  std::int64_t v_stride;
  std::int64_t num_keys;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> sinks;
  AlignedBuffer<float> scratch;
};

struct Reference {
  std::vector<double> weights;  // of keys begin .. position, summing to 1 (less with a sink)
  std::int64_t begin = 0;
  double logit_error = 0.0;  // bound over the keys
};

Reference reference_weights(const AttentionArgs& args, std::int64_t query, std::int64_t head) {
  Reference out;
  const std::int64_t position = args.first_position + query;
  out.begin = args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const float* q = args.q + query * args.q_stride + head * args.q_head_stride;
  double max_logit = args.sinks != nullptr ? static_cast<double>(args.sinks[head]) : -1e300;
  for (std::int64_t key = out.begin; key <= position; ++key) {
    double sum = 0.0;
    double magnitude = 0.0;
    for (std::int64_t d = 0; d < args.k_dim; ++d) {
      const double term =
          static_cast<double>(q[d]) * static_cast<double>(args.k[key * args.k_stride + d]);
      sum += term;
      magnitude += std::fabs(term);
    }
    const auto scale = static_cast<double>(args.scale);
    out.weights.push_back(sum * scale);
    out.logit_error =
        std::max(out.logit_error, sum_tolerance(args.k_dim, magnitude * scale) +
                                      2.0 * kF32Roundoff * (std::fabs(sum * scale) + 10.0));
    max_logit = std::max(max_logit, out.weights.back());
  }
  double denominator =
      args.sinks != nullptr ? std::exp(static_cast<double>(args.sinks[head]) - max_logit) : 0.0;
  for (double& weight : out.weights) {
    weight = std::exp(weight - max_logit);
    denominator += weight;
  }
  for (double& weight : out.weights) {
    weight /= denominator;
  }
  return out;
}

class Attention : public LevelTest {};

// An error e of the logits changes each weight by a factor within 1 +- 2e, and the exponential, the
// rescaling and the sums add rounding per key.
TEST_P(Attention, IsTheSoftmaxMeanInDouble) {
  Rng rng(31);
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    Data data(shape, rng);
    std::vector<float> out;
    const AttentionArgs args = data.args(shape, out);
    table().attention(args);
    for (std::int64_t query = 0; query < shape.num_queries; ++query) {
      for (std::int64_t head = 0; head < shape.num_heads; ++head) {
        const Reference reference = reference_weights(args, query, head);
        const auto num_visible = static_cast<std::int64_t>(reference.weights.size());
        for (std::int64_t d = 0; d < shape.v_dim; ++d) {
          double expected = 0.0;
          double magnitude = 0.0;
          for (std::int64_t i = 0; i < num_visible; ++i) {
            const double term =
                reference.weights[static_cast<std::size_t>(i)] *
                static_cast<double>(args.v[(reference.begin + i) * args.v_stride + d]);
            expected += term;
            magnitude += std::fabs(term);
          }
          const auto at =
              static_cast<std::size_t>((query * shape.num_heads + head) * shape.v_dim + d);
          ASSERT_NEAR(static_cast<double>(out[at]), expected,
                      2.0 * reference.logit_error * magnitude +
                          2.0 * sum_tolerance(num_visible + 8, magnitude))
              << "query " << query << " head " << head << " dim " << d;
        }
      }
    }
  }
}

TEST_P(Attention, GivesAQueryTheSameBitsAloneAndInABatch) {
  Rng rng(32);
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    Data data(shape, rng);
    std::vector<float> all;
    table().attention(data.args(shape, all));
    std::vector<float> single;
    AttentionArgs args = data.args(shape, single);
    args.num_queries = 1;
    for (std::int64_t query = 0; query < shape.num_queries; ++query) {
      table().attention(args);
      args.q += args.q_stride;
      args.out += args.out_stride;
      args.first_position += 1;
    }
    EXPECT_EQ(std::memcmp(all.data(), single.data(), all.size() * sizeof(float)), 0);
  }
}

// Keys outside every window of the call may be gone: they must not be read, let alone counted.
TEST_P(Attention, IgnoresKeysOutsideTheWindow) {
  Rng rng(33);
  const AttentionShape shape{"", 3, 2, 100, 20, 24, 24, false};
  Data data(shape, rng);
  std::vector<float> expected;
  table().attention(data.args(shape, expected));
  std::fill_n(data.k.begin(), 81 * data.k_stride, NAN);
  std::fill_n(data.v.begin(), 81 * data.v_stride, NAN);
  std::vector<float> actual;
  table().attention(data.args(shape, actual));
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

TEST_P(Attention, LargeLogitsDoNotOverflow) {
  Rng rng(34);
  const AttentionShape shape{"", 2, 1, 80, 0, 16, 16, false};
  Data data(shape, rng);
  for (float& value : data.q) {
    value *= 1000.0F;
  }
  std::vector<float> out;
  table().attention(data.args(shape, out));
  for (const float value : out) {
    EXPECT_LE(std::fabs(value), 6.0F);  // a mean of normal values; false for NaN
  }
}

// Keys in panels; what nobody sees is NaN there.
std::vector<float> panels_of(const AttentionArgs& args, std::int64_t num_keys,
                             std::int64_t panel_stride) {
  std::vector<float> out(static_cast<std::size_t>((num_keys + 15) / 16 * panel_stride), NAN);
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, args.first_position - args.window + 1) : 0;
  for (std::int64_t key = first; key < num_keys; ++key) {
    for (std::int64_t d = 0; d < args.k_dim; ++d) {
      out[static_cast<std::size_t>(key / 16 * panel_stride + d * 16 + key % 16)] =
          args.k[key * args.k_stride + d];
    }
  }
  return out;
}

TEST_P(Attention, GivesTheSameBitsForKeysInPanels) {
  Rng rng(35);
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    Data data(shape, rng);
    std::vector<float> rows;
    AttentionArgs args = data.args(shape, rows);
    table().attention(args);
    const std::int64_t panel_stride = 16 * (shape.k_dim + 5);
    const std::vector<float> panels = panels_of(args, data.num_keys, panel_stride);
    std::vector<float> actual;
    args = data.args(shape, actual);
    args.k = panels.data();
    args.k_stride = 0;
    args.k_panel_stride = panel_stride;
    table().attention(args);
    EXPECT_EQ(std::memcmp(actual.data(), rows.data(), rows.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Attention, testing::ValuesIn(levels_under_test()),
                         level_test_name);

}  // namespace
}  // namespace moe::kernels
