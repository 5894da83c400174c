#include "lib/app/bench/weight_cast.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kAlignment = 64;
// Rows of one piece of work: enough to be worth handing out, few enough to see an interrupt.
constexpr std::int64_t kRowsPerTask = 64;

void add_ffn(model::FfnView& ffn, std::vector<model::MatrixView*>& views) {
  for (model::MatrixView* view : {&ffn.gate, &ffn.up, &ffn.down}) views.push_back(view);
}

std::vector<model::MatrixView*> matrices_to_cast(model::BoundModel& model, model::Dtype dtype) {
  std::vector<model::MatrixView*> views = {&model.lm_head};
  for (model::LayerView& layer : model.layers) {
    model::AttentionView& attention = layer.attention;
    for (model::MatrixView* view :
         {&attention.q, &attention.k, &attention.v, &attention.o, &attention.q_a, &attention.q_b,
          &attention.kv_a, &attention.kv_b}) {
      views.push_back(view);
    }
    add_ffn(layer.dense, views);
    for (model::FfnView& expert : layer.experts) add_ffn(expert, views);
    add_ffn(layer.shared, views);
  }
  std::erase_if(views, [dtype](const model::MatrixView* view) {
    return view->empty() ||
           (view->encoding == model::MatrixEncoding::kPlain && view->dtype == dtype);
  });
  return views;
}

void encode_row(const std::vector<float>& row, model::Dtype dtype, std::byte* out) {
  if (dtype == model::Dtype::kF32) {
    std::memcpy(out, row.data(), row.size() * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits =
        dtype == model::Dtype::kBf16 ? model::f32_to_bf16(row[i]) : model::f32_to_f16(row[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void check_memory(std::int64_t bytes, const EngineArgs& args) {
  engine::EngineOptions options;
  options.max_memory_bytes = args.max_memory_bytes;
  const std::int64_t budget = memory_budget(options);
  if (budget == 0 || bytes <= budget) return;
  throw Error(args.max_memory_bytes > 0 ? ErrorCode::kUsage : ErrorCode::kInput,
              fmt::format("--dtype: the converted weights need {}, {} may be used; leave --dtype "
                          "out, or use a machine with more memory",
                          format_bytes_binary(static_cast<double>(bytes)),
                          format_bytes_binary(static_cast<double>(budget))));
}

}  // namespace

AlignedBytes cast_weights(model::Dtype dtype, const EngineArgs& args, Progress& progress,
                          const Interrupt& interrupt, model::BoundModel& model) {
  const std::int64_t element_bytes = div_exact(model::dtype_bits(dtype), 8);
  const std::vector<model::MatrixView*> views = matrices_to_cast(model, dtype);
  std::int64_t total_bytes = 0;
  for (const model::MatrixView* view : views) {
    // The binder has checked rows x cols of every tensor against 64 bits of bytes.
    total_bytes += align_up(view->rows * view->cols * element_bytes, kAlignment);
  }
  check_memory(total_bytes, args);
  AlignedBytes storage(total_bytes);
  ThreadPool pool(args.num_threads > 0 ? static_cast<int>(args.num_threads) : num_usable_threads());
  progress.begin("convert", total_bytes, "bytes");
  std::int64_t offset = 0;
  for (model::MatrixView* view : views) {
    if (interrupt.requested()) throw Error(ErrorCode::kRuntime, "interrupted");
    std::byte* const out = storage.data() + offset;
    const model::MatrixView source = *view;
    const std::int64_t row_bytes = source.cols * element_bytes;
    pool.for_each(div_ceil(source.rows, kRowsPerTask), [&](std::int64_t task, int) {
      std::vector<float> row(static_cast<std::size_t>(source.cols));
      const std::int64_t end = std::min(source.rows, (task + 1) * kRowsPerTask);
      for (std::int64_t r = task * kRowsPerTask; r < end; ++r) {
        model::read_matrix_row(source, r, row.data());
        encode_row(row, dtype, out + r * row_bytes);
      }
    });
    *view = model::MatrixView();
    view->name = source.name;
    view->dtype = dtype;
    view->rows = source.rows;
    view->cols = source.cols;
    view->data = out;
    view->row_stride = source.cols;
    offset += align_up(source.rows * row_bytes, kAlignment);
    progress.update(offset);
  }
  progress.end();
  return storage;
}

}  // namespace moe::app
