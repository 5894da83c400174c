// Packing of checkpoint matrices into panels, per thread: bytes of packed weights per second. Of a
// load this is what the processor does; reading the file and zeroing new memory come on top.

#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "lib/engine/pack_plan.hpp"

namespace {

using moe::engine::PackOrder;
using moe::engine::PackPlan;
using moe::model::MatrixView;

MatrixView plain(moe::model::Dtype dtype, std::int64_t rows, std::int64_t cols,
                 std::vector<std::byte>& storage) {
  storage.assign(static_cast<std::size_t>(rows * cols * moe::model::dtype_bits(dtype) / 8),
                 std::byte{0x2f});
  MatrixView view;
  view.name = "weight";
  view.dtype = dtype;
  view.rows = rows;
  view.cols = cols;
  view.data = storage.data();
  view.row_stride = cols;
  return view;
}

void pack(benchmark::State& state, moe::model::Dtype dtype) {
  std::vector<std::byte> storage;
  const MatrixView view = plain(dtype, 4096, 2048, storage);
  moe::ThreadPool pool(static_cast<int>(state.range(0)));
  moe::NullProgress progress;
  const moe::Interrupt interrupt;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    PackPlan plan;
    moe::kernels::PackedMatrix packed;
    plan.add({moe::engine::whole(view)}, PackOrder::kSequential, &packed);
    const moe::AlignedBytes block = plan.execute(pool, false, progress, interrupt);
    benchmark::DoNotOptimize(block.data());
    bytes += block.size_bytes();
  }
  state.SetBytesProcessed(bytes);
}

BENCHMARK_CAPTURE(pack, bf16, moe::model::Dtype::kBf16)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(pack, f16, moe::model::Dtype::kF16)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(pack, f32, moe::model::Dtype::kF32)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
