// Packed matrices hold what the checkpoint holds: checked by multiplying with unit vectors.

#include "lib/engine/pack_plan.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/engine/gemm.hpp"
#include "lib/engine/model_weights.hpp"
#include "lib/model/coded_matrix.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using kernels::PackedMatrix;
using kernels::WeightFormat;
using model::MatrixEncoding;
using model::MatrixView;

// An fp8 matrix of random codes with random block scales, and a bf16 one.
class PackPlanTest : public ::testing::Test {
 protected:
  MatrixView fp8(std::int64_t rows, std::int64_t cols, std::int32_t block) {
    auto& codes = bytes_.emplace_back(static_cast<std::size_t>(rows * cols));
    for (auto& code : codes) {
      // Neither of the two NaN codes.
      code = static_cast<std::byte>(rng_.next_below(127) | (rng_.next_bits() & 0x80));
    }
    const std::int64_t scale_rows = div_ceil(rows, block);
    const std::int64_t scale_cols = div_ceil(cols, block);
    auto& scales = floats_.emplace_back(static_cast<std::size_t>(scale_rows * scale_cols));
    for (float& scale : scales) scale = static_cast<float>(0.5 + rng_.next_uniform());
    MatrixView view;
    view.name = "fp8";
    view.encoding = MatrixEncoding::kFp8Block;
    view.dtype = model::Dtype::kF8E4m3;
    view.rows = rows;
    view.cols = cols;
    view.data = codes.data();
    view.row_stride = cols;
    view.fp8_scales = scales.data();
    view.scale_row_stride = scale_cols;
    view.block_rows = block;
    view.block_cols = block;
    return view;
  }

  MatrixView bf16(std::int64_t rows, std::int64_t cols) {
    auto& values = bytes_.emplace_back(static_cast<std::size_t>(2 * rows * cols));
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const std::uint16_t bits = model::f32_to_bf16(static_cast<float>(rng_.next_normal()));
      std::memcpy(values.data() + 2 * i, &bits, 2);
    }
    MatrixView view;
    view.name = "bf16";
    view.rows = rows;
    view.cols = cols;
    view.data = values.data();
    view.row_stride = cols;
    return view;
  }

  // Random codes with f16 scales and zero points, GPTQ words; `order`: activation order.
  MatrixView gptq(std::int64_t rows, std::int64_t cols, std::int32_t group,
                  const std::vector<std::int32_t>* order = nullptr) {
    const std::int64_t groups = div_ceil(cols, group);
    MatrixView view;
    view.name = "gptq";
    view.encoding = MatrixEncoding::kGptq;
    view.rows = rows;
    view.cols = cols;
    view.code_bits = 4;
    view.block_cols = group;
    view.data = random_bytes(rows * cols / 2);
    view.zeros = random_bytes(groups * rows / 2);
    view.zero_stride = rows / 8;
    view.scale_dtype = model::Dtype::kF16;
    view.scale_col_stride = rows;
    view.scale_row_stride = 1;
    auto& scales = bytes_.emplace_back(static_cast<std::size_t>(groups * rows * 2));
    for (std::size_t i = 0; i < scales.size(); i += 2) {
      const auto bits = static_cast<std::uint16_t>((rng_.next_bits() & 0x3ffU) | (9U << 10U));
      std::memcpy(scales.data() + i, &bits, 2);
    }
    view.scales = scales.data();
    view.column_order = order == nullptr ? nullptr : order->data();
    return view;
  }

  // Blocks of a GGUF type whose f16 scales stand at the given offsets.
  MatrixView gguf(MatrixEncoding encoding, std::int64_t rows, std::int64_t cols,
                  std::size_t block_bytes, std::initializer_list<std::size_t> scales_at) {
    MatrixView view;
    view.encoding = encoding;
    view.name = model::storage_name(view);
    view.rows = rows;
    view.cols = cols;
    view.row_stride = model::gguf_row_bytes(encoding, cols);
    view.data = random_bytes(rows * view.row_stride);
    auto& bytes = bytes_.back();
    for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
      for (const std::size_t scale : scales_at) {
        const auto bits = static_cast<std::uint16_t>((rng_.next_bits() & 0x83ffU) | (9U << 10U));
        std::memcpy(bytes.data() + at + scale, &bits, 2);
      }
      if (scales_at.size() == 0) bytes[at] = static_cast<std::byte>(120 + rng_.next_below(9));
    }
    return view;
  }

  const std::byte* random_bytes(std::int64_t count) {
    auto& bytes = bytes_.emplace_back(static_cast<std::size_t>(count));
    for (auto& value : bytes) value = static_cast<std::byte>(rng_.next_bits() & 0xffU);
    return bytes.data();
  }

  AlignedBytes execute(const PackPlan& plan) {
    NullProgress progress;
    const Interrupt interrupt;
    return plan.execute(pool_, false, progress, interrupt);
  }

  // The packed matrix, read by the scalar kernel: W e_c for every column c.
  std::vector<std::vector<float>> read_back(const PackedMatrix& packed) {
    ActivationBuffer x(packed.cols, packed.cols, false);
    for (std::int64_t i = 0; i < packed.cols; ++i) x.f32(i)[i] = 1.0F;
    std::vector<float> y(static_cast<std::size_t>(packed.cols * packed.rows));
    kernels::GemmArgs args;
    args.weight = packed;
    args.panel_end = div_ceil(packed.rows, kernels::kPanelRows);
    args.x = x.f32(0);
    args.x_stride = x.stride();
    args.num_rows = packed.cols;
    args.y = y.data();
    args.y_stride = packed.rows;
    kernels::kernel_table(kernels::Isa::kScalar)->gemm(args);
    std::vector<std::vector<float>> matrix(static_cast<std::size_t>(packed.rows));
    for (std::size_t row = 0; row < matrix.size(); ++row) {
      for (std::int64_t col = 0; col < packed.cols; ++col) {
        matrix[row].push_back(y[static_cast<std::size_t>(col) * matrix.size() + row]);
      }
    }
    return matrix;
  }

  static std::vector<float> row_of(const MatrixView& view, std::int64_t row) {
    std::vector<float> values(static_cast<std::size_t>(view.cols));
    model::read_matrix_row(view, row, values.data());
    return values;
  }

  void expect_rows(const std::vector<std::vector<float>>& packed, std::size_t at,
                   const MatrixView& view) {
    for (std::int64_t row = 0; row < view.rows; ++row) {
      const std::vector<float> expected = row_of(view, row);
      for (std::size_t col = 0; col < expected.size(); ++col) {
        EXPECT_FLOAT_EQ(packed[at + static_cast<std::size_t>(row)][col], expected[col]);
      }
    }
  }

  Rng rng_{1};
  ThreadPool pool_{2};
  std::list<std::vector<std::byte>> bytes_;
  std::list<std::vector<float>> floats_;
};

TEST_F(PackPlanTest, PartsFollowOneAnotherInWholePanels) {
  const MatrixView a = bf16(20, 7);
  const MatrixView b = bf16(9, 7);
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(a), whole(b)}, PackOrder::kSequential, &packed);
  const AlignedBytes block = execute(plan);
  EXPECT_EQ(block.size_bytes(), plan.total_bytes());
  EXPECT_EQ(packed.format, WeightFormat::kBf16);
  EXPECT_EQ(packed.rows, 48);
  const auto matrix = read_back(packed);
  expect_rows(matrix, 0, a);
  expect_rows(matrix, 32, b);
  EXPECT_EQ(matrix[20], std::vector<float>(7, 0.0F));
}

TEST_F(PackPlanTest, GateAndUpAlternate) {
  const MatrixView gate = bf16(32, 6);
  const MatrixView up = bf16(32, 6);
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(gate), whole(up)}, PackOrder::kInterleaved, &packed);
  const AlignedBytes block = execute(plan);
  const auto matrix = read_back(packed);
  for (std::size_t row = 0; row < 32; ++row) {
    const std::size_t at = row / 16 * 32 + row % 16;
    EXPECT_EQ(matrix[at], row_of(gate, static_cast<std::int64_t>(row)));
    EXPECT_EQ(matrix[at + 16], row_of(up, static_cast<std::int64_t>(row)));
  }
}

TEST_F(PackPlanTest, DifferentFormatsMeetInF32) {
  const MatrixView a = bf16(16, 40);
  const MatrixView b = fp8(16, 40, 32);
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(a), whole(b)}, PackOrder::kSequential, &packed);
  const AlignedBytes block = execute(plan);
  EXPECT_EQ(packed.format, WeightFormat::kF32);
  const auto matrix = read_back(packed);
  expect_rows(matrix, 0, a);
  expect_rows(matrix, 16, b);
}

TEST_F(PackPlanTest, NeighboursOfOneFormatAreARun) {
  const MatrixView a = bf16(16, 40);
  const MatrixView b = fp8(16, 40, 32);
  const MatrixView c = fp8(32, 40, 32);
  const auto sizes = [](const std::vector<MatrixSlice>& parts) {
    std::vector<std::size_t> out;
    for (const auto& run : runs_of_one_format(parts)) out.push_back(run.size());
    return out;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(sizes({whole(a), whole(a), whole(a)}), ElementsAre(3));
  EXPECT_THAT(sizes({whole(a), whole(a), whole(b)}), ElementsAre(2, 1));
  EXPECT_THAT(sizes({whole(a), whole(b), whole(c)}), ElementsAre(1, 2));
  EXPECT_THAT(sizes({whole(b), whole(a), whole(b)}), ElementsAre(1, 1, 1));
}

// Values in 6 bits, queries and keys in 4.
TEST_F(PackPlanTest, MixedAttentionKeepsItsFormats) {
  const model::BoundModel bound =
      model::bind_checkpoint(testing::checkpoint_dir("qwen3moe-gguf-q4_k_m"));
  ModelWeights weights;
  const PackPlan plan = plan_weights(bound, weights);
  std::size_t most_runs = 0;
  for (const LayerWeights& layer : weights.layers) {
    most_runs = std::max(most_runs, layer.attention.input.size());
    for (const PackedMatrix& matrix : layer.attention.input) {
      EXPECT_TRUE(matrix.format == WeightFormat::kInt4 || matrix.format == WeightFormat::kInt8);
    }
  }
  EXPECT_GT(most_runs, 1U) << "no layer of the case mixes formats";
}

TEST_F(PackPlanTest, Fp8KeepsItsFormatWhereBlocksStayWhole) {
  const MatrixView a = fp8(70, 50, 32);
  PackPlan plan;
  PackedMatrix all;
  PackedMatrix aligned;
  PackedMatrix cut;
  PackedMatrix turned;
  plan.add({whole(a)}, PackOrder::kSequential, &all);
  plan.add({{&a, 32, 20, false}}, PackOrder::kSequential, &aligned);
  plan.add({{&a, 28, 30, false}}, PackOrder::kSequential, &cut);
  plan.add({{&a, 28, 30, true}}, PackOrder::kSequential, &turned);
  const AlignedBytes block = execute(plan);
  EXPECT_EQ(all.format, WeightFormat::kFp8);
  EXPECT_EQ(aligned.format, WeightFormat::kFp8);
  EXPECT_EQ(cut.format, WeightFormat::kF32);
  EXPECT_EQ(turned.format, WeightFormat::kF32);
  expect_rows(read_back(all), 0, a);
  const auto aligned_rows = read_back(aligned);
  const auto cut_rows = read_back(cut);
  const auto turned_rows = read_back(turned);
  ASSERT_EQ(turned_rows.size(), 50U);
  for (std::int64_t col = 0; col < 50; ++col) {
    const auto c = static_cast<std::size_t>(col);
    EXPECT_FLOAT_EQ(aligned_rows[3][c], row_of(a, 35)[c]);
    EXPECT_FLOAT_EQ(cut_rows[29][c], row_of(a, 57)[c]);
    EXPECT_FLOAT_EQ(turned_rows[c][5], row_of(a, 33)[c]);
  }
}

TEST_F(PackPlanTest, PlainSlicesTurnWithoutWidening) {
  const MatrixView a = bf16(30, 20);
  PackPlan plan;
  PackedMatrix turned;
  plan.add({{&a, 10, 12, true}}, PackOrder::kSequential, &turned);
  const AlignedBytes block = execute(plan);
  EXPECT_EQ(turned.format, WeightFormat::kBf16);
  const auto matrix = read_back(turned);
  for (std::size_t col = 0; col < 20; ++col) {
    EXPECT_EQ(matrix[col][11], row_of(a, 21)[col]);
  }
}

TEST_F(PackPlanTest, Fp8NanIsRefusedByName) {
  const MatrixView a = fp8(40, 40, 32);
  const_cast<std::byte*>(a.data)[39 * 40 + 7] = std::byte{0xff};
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(a)}, PackOrder::kSequential, &packed);
  EXPECT_THROW(static_cast<void>(execute(plan)), Error);
}

TEST_F(PackPlanTest, BlockTypesOfGgufArePackedExactly) {
  const std::vector<std::pair<MatrixView, WeightFormat>> cases = {
      {gguf(MatrixEncoding::kGgufQ8_0, 19, 64, 34, {0}), WeightFormat::kInt8},
      {gguf(MatrixEncoding::kGgufQ4_0, 19, 64, 18, {0}), WeightFormat::kInt4},
      {gguf(MatrixEncoding::kGgufQ4K, 19, 512, 144, {0, 2}), WeightFormat::kInt4},
      {gguf(MatrixEncoding::kGgufQ6K, 19, 512, 210, {208}), WeightFormat::kInt8},
      {gguf(MatrixEncoding::kGgufMxfp4, 19, 64, 17, {}), WeightFormat::kMxfp4}};
  for (const auto& [view, format] : cases) {
    SCOPED_TRACE(view.name);
    PackPlan plan;
    PackedMatrix packed;
    plan.add({whole(view)}, PackOrder::kSequential, &packed);
    EXPECT_EQ(packed.format, format);
    const AlignedBytes block = execute(plan);
    EXPECT_EQ(block.size_bytes(), plan.total_bytes());
    expect_rows(read_back(packed), 0, view);
  }
}

TEST_F(PackPlanTest, ActivationOrderIsKeptBesideThePanels) {
  std::vector<std::int32_t> order(64);
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int32_t>(k * 29 % 64);
  const MatrixView gate = gptq(24, 64, 32, &order);
  const MatrixView up = gptq(24, 64, 32, &order);
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(gate), whole(up)}, PackOrder::kInterleaved, &packed);
  EXPECT_EQ(packed.format, WeightFormat::kInt4);
  EXPECT_EQ(packed.column_order, nullptr);
  const AlignedBytes block = execute(plan);
  EXPECT_TRUE(std::equal(order.begin(), order.end(), packed.column_order));
  const auto rows = read_back(packed);
  EXPECT_FLOAT_EQ(rows[0][5], row_of(gate, 0)[5]);
  EXPECT_FLOAT_EQ(rows[16][5], row_of(up, 0)[5]);
  EXPECT_FLOAT_EQ(rows[32 + 3][9], row_of(gate, 16 + 3)[9]);
}

// One order for both is what a fused product can read.
TEST_F(PackPlanTest, DifferentOrdersOrGroupsAreWidened) {
  std::vector<std::int32_t> order(64);
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int32_t>(k * 29 % 64);
  const MatrixView plain = gptq(16, 64, 32);
  const MatrixView ordered = gptq(16, 64, 32, &order);
  const MatrixView wide_groups = gptq(16, 64, 64);
  for (const MatrixView* other : {&ordered, &wide_groups}) {
    PackPlan plan;
    PackedMatrix packed;
    plan.add({whole(plain), whole(*other)}, PackOrder::kSequential, &packed);
    EXPECT_EQ(packed.format, WeightFormat::kF32);
    const AlignedBytes block = execute(plan);
    expect_rows(read_back(packed), 0, plain);
    expect_rows(read_back(packed), 16, *other);
  }
}

TEST_F(PackPlanTest, AScaleThatIsNotFiniteIsRefused) {
  MatrixView view = gguf(MatrixEncoding::kGgufQ8_0, 16, 32, 34, {0});
  const std::uint16_t infinite = 0x7c00;
  std::memcpy(bytes_.back().data() + std::size_t{34} * 3, &infinite, 2);
  PackPlan plan;
  PackedMatrix packed;
  plan.add({whole(view)}, PackOrder::kSequential, &packed);
  EXPECT_THROW((void)execute(plan), Error);
}

}  // namespace
}  // namespace moe::engine
