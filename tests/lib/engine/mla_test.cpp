// Latent attention in the absorbed form against the form it was derived from: keys and values of
// every head are made from the latents, in f64, with the weights of the checkpoint.

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using testing::checkpoint_dir;
using testing::load_engine;
using testing::random_tokens;
using testing::small_options;

using Matrix = std::vector<std::vector<double>>;

Matrix read(const model::MatrixView& view) {
  Matrix matrix;
  std::vector<float> row(static_cast<std::size_t>(view.cols));
  for (std::int64_t r = 0; r < view.rows; ++r) {
    model::read_matrix_row(view, r, row.data());
    matrix.emplace_back(row.begin(), row.end());
  }
  return matrix;
}

std::vector<double> times(const Matrix& matrix, const std::vector<double>& x) {
  std::vector<double> y;
  for (const auto& row : matrix) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

std::vector<double> rms_norm(const std::vector<double>& x, const model::VectorView& weight,
                             double eps) {
  const std::vector<float> w = model::read_vector(weight);
  double squares = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i) squares += x[i] * x[i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(w.size()) + eps);
  std::vector<double> y;
  for (std::size_t i = 0; i < w.size(); ++i) y.push_back(x[i] * scale * static_cast<double>(w[i]));
  return y;
}

// Layer 0 tensors of one pass.
class Layer0 final : public TensorObserver {
 public:
  void on_tensor(std::string_view name, int layer, const float* data, std::int64_t rows,
                 std::int64_t cols) override {
    if (layer > 0) return;
    Matrix& matrix = tensors[std::string(name)];
    for (std::int64_t row = 0; row < rows; ++row) {
      matrix.emplace_back(data + row * cols, data + (row + 1) * cols);
    }
  }
  std::map<std::string, Matrix> tensors;
};

class MlaTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MlaTest, AbsorbedEqualsNaive) {
  const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(GetParam()));
  const model::AttentionConfig& config = model.config.attention;
  const model::MlaConfig& mla = config.mla;
  Engine engine = load_engine(model, small_options(48));
  Layer0 seen;
  engine.set_tensor_observer(&seen);
  testing::all_logits(engine, 0, random_tokens(40, model.config.vocab_size, 3));
  const Matrix& q = seen.tensors["q_rope"];
  const Matrix& k = seen.tensors["k_rope"];  // W_uk c | rotated part, per head

  const model::LayerView& layer = model.layers[0];
  const Matrix kv_a = read(layer.attention.kv_a);
  const Matrix kv_b = read(layer.attention.kv_b);
  const Matrix output = read(layer.attention.o);
  const auto heads = static_cast<std::size_t>(config.num_heads);
  const auto dim = static_cast<std::size_t>(config.head_dim);
  const auto nope = static_cast<std::size_t>(mla.qk_nope_head_dim);
  const auto v_dim = static_cast<std::size_t>(mla.v_head_dim);
  Matrix values;  // [token][head * v_dim]
  for (const auto& hidden : seen.tensors["embed"]) {
    const auto x = rms_norm(hidden, layer.input_norm.weight, model.config.norm_eps);
    const auto c = rms_norm(times(kv_a, x), layer.attention.kv_a_norm, mla.latent_norm_eps);
    const std::vector<double> all = times(kv_b, c);
    std::vector<double>& row = values.emplace_back();
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < v_dim; ++i) row.push_back(all[head * (nope + v_dim) + nope + i]);
    }
  }
  for (std::size_t t = 0; t < q.size(); ++t) {
    std::vector<double> mixed(heads * v_dim, 0.0);
    for (std::size_t head = 0; head < heads; ++head) {
      std::vector<double> weights;
      double sum = 0.0;
      for (std::size_t j = 0; j <= t; ++j) {
        double score = 0.0;
        for (std::size_t i = head * dim; i < (head + 1) * dim; ++i) score += q[t][i] * k[j][i];
        weights.push_back(std::exp(score * config.softmax_scale));
        sum += weights.back();
      }
      for (std::size_t j = 0; j <= t; ++j) {
        for (std::size_t i = 0; i < v_dim; ++i) {
          mixed[head * v_dim + i] += weights[j] / sum * values[j][head * v_dim + i];
        }
      }
    }
    const std::vector<double> expected = times(output, mixed);
    const std::vector<double>& found = seen.tensors["attn_out"][t];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-4 * std::max(1.0, std::abs(expected[i])));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MlaTest,
                         ::testing::Values("dsv2-lite", "dsv2-group", "dsv3-a", "dsv3-fp8-32"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moe::engine
