// Finds the tensors of a model in the files of a checkpoint and lays views over them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/name_map.hpp"
#include "lib/base/text.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/expected_tensors.hpp"
#include "lib/model/gguf_binder.hpp"
#include "lib/model/int_tensors.hpp"
#include "lib/model/model_slots.hpp"
#include "lib/model/tensor_files.hpp"
#include "lib/model/value_scan.hpp"
#include "lib/model/weight_format.hpp"

namespace moe::model {
namespace {

bool is_plain_float(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16;
}

class Binder {
 public:
  Binder(BoundModel& model, const TensorFiles& files, const BindOptions& options)
      : model_(model),
        config_(model.config),
        files_(files),
        options_(options),
        int_tensors_(model, files, options.scan_values, used_) {
    model_.layers.resize(config_.layers.size());
    used_.reserve(files.num_tensors());
  }

  void run() {
    const MoeNames* names = choose_moe_names(config_, [&](const std::string& name) {
      return files_.contains(name) || files_.contains(name + "_blocks") || int_tensors_.has(name);
    });
    visit_expected_tensors(config_, names, [&](const ExpectedTensor& expected) { bind(expected); });
    bind_head();
    check_rest();
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& what) const {
    const std::string where = files_.contains(tensor) ? files_.file_of(tensor).path().string()
                                                      : files_.directory().string();
    throw Error(ErrorCode::kInput,
                fmt::format("{}: tensor \"{}\": {}", where, printable(tensor), what));
  }

  // A tensor that must be there; marks it as used.
  TensorRef take(const std::string& name, const Shape& shape, std::string_view why = {}) {
    const auto tensor = files_.find(name);
    if (!tensor) {
      fail(name,
           fmt::format("missing; {}",
                       why.empty() ? fmt::format("a {} model of this config.json "
                                                 "needs it with shape {}",
                                                 family_name(config_.family), shape.to_string())
                                   : std::string(why)));
    }
    used_.insert(tensor->name, 0);
    return *tensor;
  }

  TensorRef take_exact(const std::string& name, const Shape& shape, std::string_view why = {}) {
    const TensorRef tensor = take(name, shape, why);
    if (tensor.shape != shape) {
      fail(name, fmt::format("shape {}, expected {} by config.json", tensor.shape.to_string(),
                             shape.to_string()));
    }
    return tensor;
  }

  void require_float(const TensorRef& tensor) const {
    if (is_plain_float(tensor.dtype)) return;
    const bool is_fp8 = tensor.dtype == Dtype::kF8E4m3;
    fail(tensor.name, fmt::format("dtype {}, expected F32, F16 or BF16{}", dtype_name(tensor.dtype),
                                  is_fp8 && config_.quant.method != QuantMethod::kFp8Block
                                      ? "; config.json has no quantization_config that explains FP8"
                                      : ""));
  }

  void bind(const ExpectedTensor& expected) {
    switch (expected.storage) {
      case Storage::kPlain:
        bind_plain(expected);
        break;
      case Storage::kLinear:
        bind_linear(expected);
        break;
      case Storage::kExpertsOutIn:
      case Storage::kExpertsInOut:
        bind_fused(expected);
        break;
      case Storage::kExpertsRows:
        bind_stacked(expected);
        break;
      case Storage::kExpertsMxfp4:
        bind_mxfp4(expected);
        break;
    }
  }

  void bind_plain(const ExpectedTensor& expected) {
    if (expected.slot == Slot::kEmbedding) {
      model_.embedding = rows_at_least(expected);
      return;
    }
    const TensorRef tensor = take_exact(expected.name, expected.shape);
    require_float(tensor);
    if (options_.scan_values) require_finite(tensor, files_.file_of(tensor.name).path());
    if (expected.slot == Slot::kRouter) {
      layer_at(model_, expected).router =
          plain_matrix(tensor, expected.shape[0], expected.shape[1]);
    } else if (expected.slot == Slot::kExpertsGateUpBias ||
               expected.slot == Slot::kExpertsDownBias) {
      set_expert_biases(expected, tensor);
    } else {
      VectorView& view = vector_at(model_, expected);
      view = {std::string(tensor.name), tensor.dtype, *tensor.shape.num_elements(),
              tensor.bytes.data(), 1};
    }
  }

  // Embedding and head may carry padding rows beyond the vocabulary.
  MatrixView rows_at_least(const ExpectedTensor& expected) {
    const TensorRef tensor = take(expected.name, expected.shape);
    if (tensor.shape.rank() != 2 || tensor.shape[1] != expected.shape[1] ||
        tensor.shape[0] < expected.shape[0]) {
      fail(tensor.name, fmt::format("shape {}, expected {} (vocab_size, hidden_size)",
                                    tensor.shape.to_string(), expected.shape.to_string()));
    }
    require_float(tensor);
    return plain_matrix(tensor, tensor.shape[0], tensor.shape[1]);
  }

  static MatrixView plain_matrix(const TensorRef& tensor, std::int64_t rows, std::int64_t cols) {
    MatrixView view;
    view.name = tensor.name;
    view.dtype = tensor.dtype;
    view.rows = rows;
    view.cols = cols;
    view.data = tensor.bytes.data();
    view.row_stride = cols;
    return view;
  }

  // [out, in], plain or FP8.
  void bind_linear(const ExpectedTensor& expected) {
    if (int_tensors_.has(expected.name)) {
      if (expected.slot == Slot::kQkv) {
        fail(expected.name, "quantised weights of q, k and v in one tensor are not supported");
      }
      matrix_at(model_, expected) =
          int_tensors_.bind(expected.name, expected.shape[0], expected.shape[1]);
      return;
    }
    if (expected.slot == Slot::kLmHead) {
      const auto tensor = files_.find(expected.name);
      if (!tensor || tensor->dtype != Dtype::kF8E4m3) {
        model_.lm_head = rows_at_least(expected);
        model_.lm_head.rows = config_.vocab_size;
        return;
      }
    }
    const TensorRef tensor = take_exact(expected.name, expected.shape);
    MatrixView view = plain_matrix(tensor, expected.shape[0], expected.shape[1]);
    if (tensor.dtype == Dtype::kF8E4m3 && config_.quant.method == QuantMethod::kFp8Block) {
      add_fp8_scales(view, tensor,
                     take_fp8_scales(tensor, fp8_scale_shape(config_.quant, tensor.shape)), 0);
    } else {
      require_float(tensor);
    }
    if (expected.slot == Slot::kQkv) {
      split_qkv(expected, view);
    } else {
      matrix_at(model_, expected) = std::move(view);
    }
  }

  // Rows of q, then of k, then of v.
  void split_qkv(const ExpectedTensor& expected, const MatrixView& whole) {
    const std::int64_t head_dim = config_.attention.head_dim;
    if (whole.encoding != MatrixEncoding::kPlain) {
      fail(whole.name, "quantised weights of q, k and v in one tensor are not supported");
    }
    AttentionView& attention = layer_at(model_, expected).attention;
    std::int64_t first_row = 0;
    for (const auto& [view, heads] : {std::pair{&attention.q, config_.attention.num_heads},
                                      std::pair{&attention.k, config_.attention.num_kv_heads},
                                      std::pair{&attention.v, config_.attention.num_kv_heads}}) {
      *view = whole;
      view->rows = heads * head_dim;
      view->data += first_row * whole.row_stride * dtype_bits(whole.dtype) / 8;
      first_row += view->rows;
    }
  }

  // All experts of a layer below one another; down is stored [in, out].
  void bind_stacked(const ExpectedTensor& expected) {
    const TensorRef tensor = take_exact(expected.name, expected.shape);
    require_float(tensor);
    const std::int64_t width = config_.moe.expert_intermediate_size;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t element_bytes = dtype_bits(tensor.dtype) / 8;
    std::vector<FfnView>& views = experts_at(model_, expected);
    for (std::size_t expert = 0; expert < views.size(); ++expert) {
      MatrixView view = plain_matrix(tensor, width, hidden);
      view.data += static_cast<std::int64_t>(expert) * width * hidden * element_bytes;
      if (expected.slot == Slot::kExpertsGate) {
        views[expert].gate = std::move(view);
      } else if (expected.slot == Slot::kExpertsUp) {
        views[expert].up = std::move(view);
      } else {
        std::swap(view.rows, view.cols);
        std::swap(view.row_stride, view.col_stride);
        views[expert].down = std::move(view);
      }
    }
  }

  // The scales of an FP8 tensor as f32, in whichever file they are.
  struct Fp8Scales {
    const float* data = nullptr;
    Dtype dtype = Dtype::kF32;  // in the file
  };

  Fp8Scales take_fp8_scales(const TensorRef& weight, const Shape& shape) {
    const std::string name = fp8_scale_name(config_.quant, weight.name);
    const std::string why = fmt::format("the FP8 tensor \"{}\" needs its scales", weight.name);
    const auto in_file = files_.find(name);
    const bool is_scalar = in_file && in_file->shape.rank() == 0 && shape == Shape{1};
    const TensorRef scales = take_exact(name, is_scalar ? Shape{} : shape, why);
    require_float(scales);
    int_tensors_.ignore_input_scale(std::string(weight.name));
    if (options_.scan_values) require_finite(scales, files_.file_of(scales.name).path());
    if (scales.dtype == Dtype::kF32) {
      return {reinterpret_cast<const float*>(scales.bytes.data()), scales.dtype};
    }
    auto converted = std::make_shared<const std::vector<float>>(to_f32(scales));
    const float* data = converted->data();
    model_.owned.push_back(std::move(converted));
    return {data, scales.dtype};
  }

  // `scales` is the [row blocks, column blocks] matrix that starts at `first_row` of the view.
  void add_fp8_scales(MatrixView& view, const TensorRef& tensor, const Fp8Scales& scales,
                      std::int64_t first_block_row) const {
    view.encoding = MatrixEncoding::kFp8Block;
    view.dtype = tensor.dtype;
    view.scale_dtype = scales.dtype;
    const QuantConfig& quant = config_.quant;
    view.block_rows = std::max(1, quant.block_rows);
    view.block_cols =
        quant.block_cols == 0 ? static_cast<std::int32_t>(view.cols) : quant.block_cols;
    view.scale_row_stride = quant.block_rows == 0 ? 0 : div_ceil(view.cols, view.block_cols);
    // May be unaligned: the address is computed in bytes.
    view.fp8_scales = reinterpret_cast<const float*>(
        reinterpret_cast<const std::byte*>(scales.data) +
        first_block_row * view.scale_row_stride * static_cast<std::int64_t>(sizeof(float)));
  }

  // All experts of a layer in one tensor.
  void bind_fused(const ExpectedTensor& expected) {
    const TensorRef tensor = take_exact(expected.name, expected.shape);
    const bool is_fp8 = tensor.dtype == Dtype::kF8E4m3 &&
                        config_.quant.method == QuantMethod::kFp8Block &&
                        expected.storage == Storage::kExpertsOutIn;
    if (!is_fp8) require_float(tensor);
    const std::int64_t experts = expected.shape[0];
    const bool is_in_out = expected.storage == Storage::kExpertsInOut;
    const std::int64_t rows = expected.shape[is_in_out ? 2 : 1];
    const std::int64_t cols = expected.shape[is_in_out ? 1 : 2];
    const bool is_gate_up = expected.slot == Slot::kExpertsGateUp;
    const std::int64_t block_rows = config_.quant.block_rows;
    Fp8Scales scales;
    std::int64_t scale_rows = 0;
    if (is_fp8) {
      if (block_rows == 0) {
        fail(tensor.name, "FP8 experts in one tensor with one scale each are not supported");
      }
      const Shape shape = fp8_scale_shape(config_.quant, tensor.shape);
      scale_rows = shape[1];
      scales = take_fp8_scales(tensor, shape);
      if (is_gate_up && (rows / 2) % block_rows != 0) {
        fail(tensor.name,
             fmt::format("gate and up meet inside an FP8 block: {} rows each are not a "
                         "multiple of {} (weight_block_size)",
                         rows / 2, block_rows));
      }
    }
    const std::int64_t element_bytes = dtype_bits(tensor.dtype) / 8;
    std::vector<FfnView>& views = experts_at(model_, expected);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      MatrixView whole = plain_matrix(tensor, rows, cols);
      whole.data += expert * rows * cols * element_bytes;
      if (is_in_out) {
        whole.row_stride = 1;
        whole.col_stride = rows;
      }
      if (is_fp8) add_fp8_scales(whole, tensor, scales, expert * scale_rows);
      FfnView& view = views[static_cast<std::size_t>(expert)];
      if (is_gate_up) {
        split_gate_up(whole, is_in_out && config_.family == Family::kGptOss, view);
      } else {
        view.down = std::move(whole);
      }
    }
  }

  // The [2I, H] matrix into gate and up: alternating rows, or halves.
  void split_gate_up(const MatrixView& whole, bool is_interleaved, FfnView& view) const {
    const std::int64_t element_bytes = dtype_bits(whole.dtype) / 8;
    view.gate = whole;
    view.gate.rows = whole.rows / 2;
    view.up = view.gate;
    if (is_interleaved) {
      view.up.data += whole.row_stride * element_bytes;
      view.gate.row_stride = view.up.row_stride = 2 * whole.row_stride;
      return;
    }
    view.up.data += view.gate.rows * whole.row_stride * element_bytes;
    if (whole.encoding == MatrixEncoding::kFp8Block) {
      view.up.fp8_scales = reinterpret_cast<const float*>(
          reinterpret_cast<const std::byte*>(whole.fp8_scales) +
          view.gate.rows / whole.block_rows * whole.scale_row_stride *
              static_cast<std::int64_t>(sizeof(float)));
    }
  }

  void bind_mxfp4(const ExpectedTensor& expected) {
    const std::int64_t experts = expected.shape[0];
    const std::int64_t rows = expected.shape[1];
    const std::int64_t cols = expected.shape[2];
    const std::int64_t blocks = div_exact(cols, kMxfp4Block);
    const TensorRef data =
        take_exact(expected.name + "_blocks", {experts, rows, blocks, kMxfp4Block / 2});
    const TensorRef scales = take_exact(expected.name + "_scales", {experts, rows, blocks});
    for (const TensorRef& tensor : {data, scales}) {
      if (tensor.dtype != Dtype::kU8) {
        fail(tensor.name, fmt::format("dtype {}, expected U8", dtype_name(tensor.dtype)));
      }
    }
    if (options_.scan_values) require_mxfp4_scales(scales, files_.file_of(scales.name).path());
    const bool is_gate_up = expected.slot == Slot::kExpertsGateUp;
    std::vector<FfnView>& views = experts_at(model_, expected);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      MatrixView whole;
      whole.name = data.name;
      whole.encoding = MatrixEncoding::kMxfp4;
      whole.dtype = Dtype::kF4;
      whole.rows = rows;
      whole.cols = cols;
      whole.row_stride = cols / 2;
      whole.data = data.bytes.data() + expert * rows * whole.row_stride;
      whole.scale_row_stride = blocks;
      whole.mxfp4_scales = scales.bytes.data() + expert * rows * blocks;
      whole.block_rows = 1;
      whole.block_cols = static_cast<std::int32_t>(kMxfp4Block);
      FfnView& view = views[static_cast<std::size_t>(expert)];
      if (!is_gate_up) {
        view.down = std::move(whole);
        continue;
      }
      view.gate = whole;  // even rows; odd rows are up
      view.gate.rows = rows / 2;
      view.gate.row_stride = 2 * whole.row_stride;
      view.gate.scale_row_stride = 2 * blocks;
      view.up = view.gate;
      view.up.data += whole.row_stride;
      view.up.mxfp4_scales += blocks;
    }
  }

  // gate_up_proj_bias [experts, 2I]: even entries gate, odd up. down_proj_bias [experts, H].
  void set_expert_biases(const ExpectedTensor& expected, const TensorRef& tensor) {
    const std::int64_t experts = expected.shape[0];
    const std::int64_t width = expected.shape[1];
    const std::int64_t element_bytes = dtype_bits(tensor.dtype) / 8;
    std::vector<FfnView>& views = experts_at(model_, expected);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      FfnView& view = views[static_cast<std::size_t>(expert)];
      const std::byte* row = tensor.bytes.data() + expert * width * element_bytes;
      const std::string name(tensor.name);
      if (expected.slot == Slot::kExpertsDownBias) {
        view.down_bias = {name, tensor.dtype, width, row, 1};
      } else {
        view.gate_bias = {name, tensor.dtype, width / 2, row, 2};
        view.up_bias = {name, tensor.dtype, width / 2, row + element_bytes, 2};
      }
    }
  }

  // Tied embeddings: the head is the embedding. An lm_head that is there all the same is compared.
  void bind_head() {
    if (!config_.tie_word_embeddings) return;
    model_.lm_head = model_.embedding;
    model_.lm_head.rows = config_.vocab_size;
    const auto head = files_.find("lm_head.weight");
    if (!head) return;
    used_.insert(head->name, 0);
    const auto embedding = files_.find(model_.embedding.name);
    MOE_CHECK(embedding.has_value());
    std::string verdict = "was not compared with it";
    if (options_.scan_values || head->bytes.size() != embedding->bytes.size()) {
      const bool is_equal = head->dtype == embedding->dtype && head->shape == embedding->shape &&
                            std::ranges::equal(head->bytes, embedding->bytes);
      verdict = is_equal ? "holds the same bytes" : "differs from it";
    }
    model_.ignored_tensors.push_back("lm_head.weight (tie_word_embeddings)");
    model_.warnings.push_back(fmt::format(
        "lm_head.weight is there although tie_word_embeddings is true: the embedding is used, and "
        "lm_head.weight {}",
        verdict));
  }

  // Everything in the files is used or ignored by a rule.
  void check_rest() {
    std::int64_t num_unknown = 0;
    std::string first_unknown;
    files_.for_each([&](const TensorRef& tensor) {
      if (used_.contains(tensor.name)) return;
      const std::string_view rule = ignore_rule(config_, tensor.name);
      if (!rule.empty()) {
        model_.ignored_tensors.push_back(fmt::format("{} ({})", printable(tensor.name), rule));
        return;
      }
      if (num_unknown++ == 0) first_unknown = tensor.name;
    });
    if (num_unknown > 0) {
      fail(first_unknown,
           fmt::format("not part of a {} model of this config.json ({} such tensors); every tensor "
                       "must be used or ignored by a rule",
                       family_name(config_.family), num_unknown));
    }
  }

  BoundModel& model_;
  const ModelConfig& config_;
  const TensorFiles& files_;
  const BindOptions& options_;
  NameMap used_;  // names of tensors that have a place in the model
  IntTensors int_tensors_;
};

}  // namespace

BoundModel bind_checkpoint(const std::filesystem::path& path) {
  return bind_checkpoint(path, BindOptions{});
}

BoundModel bind_checkpoint(const std::filesystem::path& path, const BindOptions& options) {
  if (const auto gguf = find_gguf(path)) return bind_gguf(*gguf, options);
  BoundModel model;
  const std::filesystem::path& directory = path;
  model.config = read_config(directory);
  auto files = std::make_shared<const TensorFiles>(directory);
  Binder(model, *files, options).run();
  model.warnings.insert(model.warnings.end(), model.config.warnings.begin(),
                        model.config.warnings.end());
  model.warnings.insert(model.warnings.end(), files->warnings().begin(), files->warnings().end());
  model.file_bytes = files->file_bytes();
  model.files = std::move(files);
  return model;
}

}  // namespace moe::model
