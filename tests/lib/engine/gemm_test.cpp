// The scheduler: every output of every call is computed once, whatever the shapes and threads, and
// the reserved list of work items suffices.

#include "lib/engine/gemm.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "lib/engine/pack_plan.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using kernels::PackedMatrix;

struct Problem {
  std::vector<float> weight;
  model::MatrixView view;
  PackedMatrix packed;
  ActivationBuffer x;
  std::vector<std::int32_t> rows;  // empty: all rows in order
  std::vector<float> bias;
  std::vector<float> y;
  std::int64_t num_rows = 0;
};

void fill(Problem& problem, Rng& rng, std::int64_t rows, std::int64_t cols, std::int64_t num_rows) {
  problem.weight.resize(static_cast<std::size_t>(rows * cols));
  for (float& w : problem.weight) w = static_cast<float>(rng.next_normal());
  problem.view.dtype = model::Dtype::kF32;
  problem.view.rows = rows;
  problem.view.cols = cols;
  problem.view.data = reinterpret_cast<const std::byte*>(problem.weight.data());
  problem.view.row_stride = cols;
  const std::int64_t x_rows = num_rows + 3;
  problem.x = ActivationBuffer(x_rows, cols, false);
  for (std::int64_t row = 0; row < x_rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      problem.x.f32(row)[col] = static_cast<float>(rng.next_normal());
    }
  }
  if (rng.next_below(2) == 1) {
    for (std::int64_t i = 0; i < num_rows; ++i) {
      problem.rows.push_back(
          static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(x_rows))));
    }
  }
  problem.num_rows = num_rows;
  problem.bias.resize(static_cast<std::size_t>(rows));
  for (float& b : problem.bias) b = static_cast<float>(rng.next_normal());
  problem.y.assign(static_cast<std::size_t>(num_rows * rows), NAN);
}

void check(Problem& problem) {
  for (std::int64_t i = 0; i < problem.num_rows; ++i) {
    const std::int64_t source =
        problem.rows.empty() ? i : problem.rows[static_cast<std::size_t>(i)];
    for (std::int64_t row = 0; row < problem.view.rows; ++row) {
      double sum = static_cast<double>(problem.bias[static_cast<std::size_t>(row)]);
      double size = 1.0;
      for (std::int64_t col = 0; col < problem.view.cols; ++col) {
        const double product =
            static_cast<double>(
                problem.weight[static_cast<std::size_t>(row * problem.view.cols + col)]) *
            static_cast<double>(problem.x.f32(source)[col]);
        sum += product;
        size += std::abs(product);
      }
      const double found =
          static_cast<double>(problem.y[static_cast<std::size_t>(i * problem.view.rows + row)]);
      // A chain of n rounded sums errs by at most n ulp of the sum of the magnitudes.
      ASSERT_NEAR(found, sum, std::ldexp(size, -24) * static_cast<double>(problem.view.cols + 2));
    }
  }
}

TEST(Gemm, ComputesEveryOutputOfEveryCall) {
  Rng rng(2);
  for (const int threads : {1, 2, 5}) {
    for (int trial = 0; trial < 12; ++trial) {
      ThreadPool pool(threads);
      ForwardStats stats;
      Exec exec;
      exec.pool = &pool;
      exec.kernels = kernels::kernel_table(testing::runnable_isas().back());
      exec.stats = &stats;
      std::vector<Problem> problems(1 + rng.next_below(9));
      std::int64_t total_rows = 0;
      PackPlan plan;
      for (Problem& problem : problems) {
        const auto rows = static_cast<std::int64_t>(1 + rng.next_below(130));
        const auto cols = static_cast<std::int64_t>(1 + rng.next_below(90));
        const auto num_rows = static_cast<std::int64_t>(rng.next_below(trial % 3 == 0 ? 300 : 9));
        fill(problem, rng, rows, cols, num_rows);
        plan.add({whole(problem.view)}, PackOrder::kSequential, &problem.packed);
        total_rows += num_rows;
      }
      NullProgress progress;
      const Interrupt interrupt;
      const AlignedBytes block = plan.execute(pool, false, progress, interrupt);
      std::vector<LinearCall> calls;
      std::int64_t flops = 0;
      for (Problem& problem : problems) {
        calls.push_back({&problem.packed, problem.x.view(),
                         problem.rows.empty() ? nullptr : problem.rows.data(), problem.num_rows,
                         problem.bias.data(), problem.y.data(), problem.view.rows});
        flops += 2 * problem.num_rows * problem.view.rows * problem.view.cols;
      }
      run_linear(exec, calls);
      for (Problem& problem : problems) check(problem);
      EXPECT_EQ(stats.flops, flops);
      EXPECT_LE(std::ssize(exec.items), max_work_items(threads, std::ssize(problems), total_rows));
    }
  }
}

}  // namespace
}  // namespace moe::engine
