#include "lib/app/bench/weight_cast.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "lib/app/table_builder.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/base/units.hpp"
#include "lib/model/coded_matrix.hpp"
#include "lib/model/quantize.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kAlignment = 64;
// Rows of one piece of work: enough to be worth handing out, few enough to see an interrupt.
constexpr std::int64_t kRowsPerTask = 64;

void add_ffn(model::FfnView& ffn, std::vector<model::MatrixView*>& views) {
  for (model::MatrixView* view : {&ffn.gate, &ffn.up, &ffn.down}) views.push_back(view);
}

// All but the head.
std::vector<model::MatrixView*> big_matrices(model::BoundModel& model) {
  std::vector<model::MatrixView*> views;
  for (model::LayerView& layer : model.layers) {
    model::AttentionView& attention = layer.attention;
    for (model::MatrixView* view :
         {&attention.q, &attention.k, &attention.v, &attention.o, &attention.q_a, &attention.q_b,
          &attention.kv_a, &attention.kv_b, &attention.k_b, &attention.v_b}) {
      views.push_back(view);
    }
    add_ffn(layer.dense, views);
    for (model::FfnView& expert : layer.experts) add_ffn(expert, views);
    add_ffn(layer.shared, views);
  }
  std::erase_if(views, [](const model::MatrixView* view) { return view->empty(); });
  return views;
}

std::vector<model::MatrixView*> matrices_to_cast(model::BoundModel& model, model::Dtype dtype) {
  std::vector<model::MatrixView*> views = big_matrices(model);
  views.insert(views.begin(), &model.lm_head);
  std::erase_if(views, [dtype](const model::MatrixView* view) {
    return view->encoding == model::MatrixEncoding::kPlain && view->dtype == dtype;
  });
  return views;
}

// The latent projection kv_b of MLA is cut and transposed when it is packed, which codes with
// scales along its rows would not survive; its parts are left alike where the file has them apart.
std::vector<model::MatrixView*> matrices_to_quantize(model::BoundModel& model) {
  std::vector<model::MatrixView*> views = big_matrices(model);
  std::erase_if(views, [&model](const model::MatrixView* view) {
    return std::any_of(
        model.layers.begin(), model.layers.end(), [view](const model::LayerView& layer) {
          const model::AttentionView& attention = layer.attention;
          return view == &attention.kv_b || view == &attention.k_b || view == &attention.v_b;
        });
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

void check_memory(const char* option, std::int64_t bytes, const EngineArgs& args) {
  engine::EngineOptions options;
  options.max_memory_bytes = args.max_memory_bytes;
  const std::int64_t budget = memory_budget(options);
  if (budget == 0 || bytes <= budget) return;
  throw Error(args.max_memory_bytes > 0 ? ErrorCode::kUsage : ErrorCode::kInput,
              fmt::format("{0}: the converted weights need {1}, {2} may be used; leave {0} out, or "
                          "use a machine with more memory",
                          option, format_bytes_binary(static_cast<double>(bytes)),
                          format_bytes_binary(static_cast<double>(budget))));
}

void add_error(const model::QuantizeError& part, model::QuantizeError& sum) {
  sum.squared_error += part.squared_error;
  sum.squared_weight += part.squared_weight;
}

std::string scales_label(model::Rounding rounding) {
  return rounding.is_per_row
             ? "an f32 scale per row (looser than groups of columns)"
             : fmt::format("a bf16 scale per {} columns of each row", model::kQuantizeGroup);
}

double relative(const model::QuantizeError& error) {
  return error.squared_weight == 0.0 ? 0.0 : std::sqrt(error.squared_error / error.squared_weight);
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
  check_memory("--dtype", total_bytes, args);
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
  model.has_copies = true;
  return storage;
}

Quantized quantize_weights(model::Rounding rounding, const EngineArgs& args, Progress& progress,
                           const Interrupt& interrupt, model::BoundModel& model) {
  const std::vector<model::MatrixView*> views = matrices_to_quantize(model);
  std::int64_t total_bytes = 0;
  for (const model::MatrixView* view : views) {
    if (view->encoding != model::MatrixEncoding::kPlain) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--quantize: {} is {} already; expected weights of 16 or 32 bits",
                              view->name, model::storage_name(*view)));
    }
    total_bytes +=
        align_up(view->rows * model::quantized_code_bytes(rounding, view->cols), kAlignment) +
        align_up(view->rows * model::quantized_scale_bytes(rounding, view->cols), kAlignment);
  }
  check_memory("--quantize", total_bytes, args);
  Quantized out;
  out.storage = AlignedBytes(total_bytes);
  out.rounding = rounding;
  out.label =
      fmt::format("int{}, {}, rounded at load; router, norms, biases, embedding and head as stored",
                  rounding.bits, scales_label(rounding));
  ThreadPool pool(args.num_threads > 0 ? static_cast<int>(args.num_threads) : num_usable_threads());
  progress.begin("quantise", total_bytes, "bytes");
  std::int64_t offset = 0;
  model::QuantizeError total;
  for (model::MatrixView* view : views) {
    if (interrupt.requested()) throw Error(ErrorCode::kRuntime, "interrupted");
    const model::MatrixView source = *view;
    const std::int64_t code_bytes = model::quantized_code_bytes(rounding, source.cols);
    const std::int64_t scale_bytes = model::quantized_scale_bytes(rounding, source.cols);
    std::byte* const codes = out.storage.data() + offset;
    std::byte* const scales = codes + align_up(source.rows * code_bytes, kAlignment);
    // Errors are summed row by row in order, so they do not depend on the threads.
    std::vector<model::QuantizeError> errors(static_cast<std::size_t>(source.rows));
    pool.for_each(div_ceil(source.rows, kRowsPerTask), [&](std::int64_t task, int) {
      std::vector<float> row(static_cast<std::size_t>(source.cols));
      const std::int64_t end = std::min(source.rows, (task + 1) * kRowsPerTask);
      for (std::int64_t r = task * kRowsPerTask; r < end; ++r) {
        model::read_matrix_row(source, r, row.data());
        errors[static_cast<std::size_t>(r)] =
            model::quantize_row(row, rounding, codes + r * code_bytes, scales + r * scale_bytes);
      }
    });
    model::QuantizeError matrix;
    for (const model::QuantizeError& error : errors) add_error(error, matrix);
    add_error(matrix, total);
    if (relative(matrix) > out.worst_error) {
      out.worst_error = relative(matrix);
      out.worst_matrix = source.name;
    }
    *view = model::quantized_view(source, rounding, codes, scales);
    offset += align_up(source.rows * code_bytes, kAlignment) +
              align_up(source.rows * scale_bytes, kAlignment);
    progress.update(offset);
  }
  progress.end();
  out.relative_error = relative(total);
  model.has_copies = true;
  return out;
}

void add_quantize_option(Options& options, EngineArgs& args) {
  options.choice("--quantize", {"none", "int8", "int4", "int8-channel"}, args.quantize,
                 "Round 16-bit weights to integers with a scale per 32 of them before they are "
                 "packed; router, norms, embedding and head stay as they are. int8-channel: a "
                 "scale per output, faster with --activations int8, which then have one per "
                 "token, and looser");
}

std::optional<Quantized> apply_quantize_option(const EngineArgs& args, Progress& progress,
                                               const Interrupt& interrupt,
                                               model::BoundModel& model) {
  if (args.quantize == "none") return std::nullopt;
  const model::Rounding rounding{.bits = args.quantize == "int4" ? 4 : 8,
                                 .is_per_row = args.quantize == "int8-channel"};
  return quantize_weights(rounding, args, progress, interrupt, model);
}

void report_quantization(const model::BoundModel& model, const Quantized* quantized,
                         report::Report& report) {
  report.settings["quantize"] = quantized == nullptr ? "none" : quantized->label;
  report.subject["weights_in_use"] = weight_dtypes(model);
  if (quantized == nullptr) return;
  report.metrics["weight_bits"] =
      value_metric(report::MetricKind::kMeasured, "bits", quantized->rounding.bits,
                   quantized->rounding.is_per_row ? "of a code; the scales add 32 bits a row"
                                                  : "of a code; the scales add half a bit");
  for (const model::LayerView& layer : model.layers) {
    if (layer.router.empty()) continue;
    report.metrics["quant_router_bits"] =
        value_metric(report::MetricKind::kMeasured, "bits",
                     static_cast<double>(model::dtype_bits(layer.router.dtype)),
                     "of a router weight as stored; products with it are in f32");
    break;
  }
  report.metrics["quantization_relative_error"] =
      value_metric(report::MetricKind::kMeasured, "1", quantized->relative_error,
                   fmt::format("root mean square of what rounding changed / of the weights; the "
                               "largest of a matrix is {:.4g}, of {}",
                               quantized->worst_error, quantized->worst_matrix));
}

}  // namespace moe::app
