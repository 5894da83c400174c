#include "lib/model/int_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"
#include "lib/model/value_scan.hpp"

namespace moe::model {
namespace {

constexpr std::string_view kWeight = ".weight";

// "MODULE.weight" -> "MODULE".
std::string module_of(const std::string& weight_name) {
  if (!weight_name.ends_with(kWeight)) return {};
  return weight_name.substr(0, weight_name.size() - kWeight.size());
}

bool all_bytes_are(const TensorRef& tensor, std::byte value) {
  return std::ranges::all_of(tensor.bytes, [value](std::byte byte) { return byte == value; });
}

}  // namespace

void IntTensors::fail(const std::string& tensor, const std::string& what) const {
  const std::string where = files_.contains(tensor) ? files_.file_of(tensor).path().string()
                                                    : files_.directory().string();
  throw Error(ErrorCode::kInput,
              fmt::format("{}: tensor \"{}\": {}", where, printable(tensor), what));
}

TensorRef IntTensors::take(const std::string& name, const Shape& shape, Dtype dtype) {
  const auto tensor = files_.find(name);
  if (!tensor) {
    fail(name, fmt::format("missing; the quantisation of config.json needs it with shape {}",
                           shape.to_string()));
  }
  if (tensor->shape != shape) {
    fail(name, fmt::format("shape {}, expected {} by config.json", tensor->shape.to_string(),
                           shape.to_string()));
  }
  if (tensor->dtype != dtype) {
    fail(name, fmt::format("dtype {}, expected {}", dtype_name(tensor->dtype), dtype_name(dtype)));
  }
  used_.insert(tensor->name, 0);
  return *tensor;
}

TensorRef IntTensors::take_scales(const std::string& name, const Shape& shape) {
  const auto tensor = files_.find(name);
  const Dtype dtype = tensor ? tensor->dtype : Dtype::kF16;
  if (dtype != Dtype::kF16 && dtype != Dtype::kBf16 && dtype != Dtype::kF32) {
    fail(name, fmt::format("dtype {}, expected F32, F16 or BF16", dtype_name(dtype)));
  }
  const TensorRef scales = take(name, shape, dtype);
  if (scan_values_) require_finite(scales, files_.file_of(name).path());
  return scales;
}

bool IntTensors::has(const std::string& weight_name) const {
  const std::string module = module_of(weight_name);
  if (module.empty()) return false;
  switch (model_.config.quant.method) {
    case QuantMethod::kGptq:
    case QuantMethod::kAwq:
      return files_.contains(module + ".qweight");
    case QuantMethod::kPackedInt:
      return files_.contains(module + ".weight_packed");
    case QuantMethod::kInt8: {
      const auto weight = files_.find(weight_name);
      return weight && weight->dtype == Dtype::kI8;
    }
    case QuantMethod::kNone:
    case QuantMethod::kFp8Block:
    case QuantMethod::kMxfp4:
    case QuantMethod::kGguf:
      return false;
  }
  return false;
}

MatrixView IntTensors::bind(const std::string& weight_name, std::int64_t rows, std::int64_t cols) {
  const QuantConfig& quant = model_.config.quant;
  const std::string module = module_of(weight_name);
  MatrixView view;
  view.rows = rows;
  view.cols = cols;
  view.code_bits = quant.bits;
  view.block_rows = 1;
  view.block_cols = static_cast<std::int32_t>(
      quant.group_size > 0 ? std::min<std::int64_t>(quant.group_size, cols) : cols);
  view.col_stride = 1;
  switch (quant.method) {
    case QuantMethod::kGptq:
    case QuantMethod::kAwq:
      bind_words(module, view);
      break;
    case QuantMethod::kPackedInt:
      bind_packed_rows(module, view);
      break;
    default:
      bind_bytes(module, view);
  }
  return view;
}

// GPTQ packs along the inputs, AWQ along the outputs; scales and zero points lie [groups, out].
void IntTensors::bind_words(const std::string& module, MatrixView& view) {
  const bool is_gptq = model_.config.quant.method == QuantMethod::kGptq;
  const std::int64_t per_word = 32 / view.code_bits;
  const std::int64_t groups = div_ceil(view.cols, view.block_cols);
  const std::string name = module + ".qweight";
  if (view.rows % per_word != 0 || (is_gptq && view.cols % per_word != 0)) {
    fail(name, fmt::format("a matrix of {} x {} does not fill words of {} codes", view.rows,
                           view.cols, per_word));
  }
  const Shape shape =
      is_gptq ? Shape{view.cols / per_word, view.rows} : Shape{view.cols, view.rows / per_word};
  const TensorRef codes = take(name, shape, Dtype::kI32);
  view.encoding = is_gptq ? MatrixEncoding::kGptq : MatrixEncoding::kAwq;
  view.name = codes.name;
  view.dtype = Dtype::kI32;
  view.data = codes.bytes.data();
  const TensorRef scales = take_scales(module + ".scales", {groups, view.rows});
  view.scales = scales.bytes.data();
  view.scale_dtype = scales.dtype;
  view.scale_row_stride = 1;
  view.scale_col_stride = view.rows;
  const TensorRef zeros = take(module + ".qzeros", {groups, view.rows / per_word}, Dtype::kI32);
  view.zeros = zeros.bytes.data();
  view.zero_stride = view.rows / per_word;
  if (!is_gptq) return;
  set_gptq_zeros(zeros, view);
  if (files_.contains(module + ".g_idx")) set_column_order(module + ".g_idx", view);
}

// Symmetric matrices have their zero in the middle, stored as 8 or, before version 2, as 7 (8 bits:
// 128 and 127). What is stored decides: files of version 2 exist that call themselves version 1.
void IntTensors::set_gptq_zeros(const TensorRef& zeros, MatrixView& view) {
  const QuantConfig& quant = model_.config.quant;
  view.zero_bias = quant.zeros_are_stored_less_one ? 1 : 0;
  if (!quant.is_symmetric || !scan_values_ || zeros.bytes.empty()) return;
  const std::byte middle = view.code_bits == 4 ? std::byte{0x88} : std::byte{0x80};
  const std::byte below = view.code_bits == 4 ? std::byte{0x77} : std::byte{0x7f};
  const bool is_version_2 = all_bytes_are(zeros, middle);
  if (!is_version_2 && !all_bytes_are(zeros, below)) return;  // not symmetric after all
  view.zeros = nullptr;
  if (is_version_2 != quant.zeros_are_stored_less_one) return;
  const std::string warning = fmt::format(
      "checkpoint_format says zero points are stored {}, but those of the symmetric matrices are "
      "stored {}: read as what they are",
      quant.zeros_are_stored_less_one ? "less one (gptq)" : "as they are (gptq_v2)",
      is_version_2 ? "as they are" : "less one");
  if (std::ranges::find(model_.warnings, warning) == model_.warnings.end()) {
    model_.warnings.push_back(warning);
  }
}

// The group of each input. With activation order they are scattered; each group has the same number
// of columns, the last one what is left.
void IntTensors::set_column_order(const std::string& name, MatrixView& view) {
  const TensorRef tensor = take(name, {view.cols}, Dtype::kI32);
  if (!scan_values_) return;
  const std::vector<std::int32_t> group_of = to_i32(tensor);
  const std::int64_t groups = div_ceil(view.cols, view.block_cols);
  std::vector<std::int32_t> order(group_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](std::int32_t col) { return group_of[static_cast<std::size_t>(col)]; });
  bool is_natural = true;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::int32_t group = group_of[static_cast<std::size_t>(order[k])];
    const std::int64_t expected = static_cast<std::int64_t>(k) / view.block_cols;
    if (group != expected) {
      fail(name, group < 0 || group >= groups
                     ? fmt::format("element {} is {}, expected a group from 0 to {}", order[k],
                                   group, groups - 1)
                     : fmt::format("group {} does not have the {} columns of group_size",
                                   std::min<std::int64_t>(group, expected), view.block_cols));
    }
    is_natural = is_natural && order[k] == static_cast<std::int32_t>(k);
  }
  if (is_natural) return;
  auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(order));
  view.column_order = kept->data();
  model_.owned_orders.push_back(std::move(kept));
}

// compressed-tensors: rows of codes stored above zero, in whole words.
void IntTensors::bind_packed_rows(const std::string& module, MatrixView& view) {
  const std::int64_t words = div_ceil(view.cols * view.code_bits, 32);
  const TensorRef codes = take(module + ".weight_packed", {view.rows, words}, Dtype::kI32);
  const TensorRef shape = take(module + ".weight_shape", {2}, Dtype::kI64);
  std::int64_t sizes[2] = {};
  std::memcpy(sizes, shape.bytes.data(), sizeof(sizes));
  if (sizes[0] != view.rows || sizes[1] != view.cols) {
    fail(module + ".weight_shape", fmt::format("[{}, {}], expected [{}, {}] by config.json",
                                               sizes[0], sizes[1], view.rows, view.cols));
  }
  view.encoding = MatrixEncoding::kIntRows;
  view.name = codes.name;
  view.dtype = Dtype::kI32;
  view.data = codes.bytes.data();
  view.row_stride = words * 4;
  const std::int64_t groups = div_ceil(view.cols, view.block_cols);
  bind_row_zeros(module, groups, view);
  if (files_.contains(module + ".weight_g_idx")) set_column_order(module + ".weight_g_idx", view);
}

void IntTensors::bind_bytes(const std::string& module, MatrixView& view) {
  const TensorRef codes = take(module + ".weight", {view.rows, view.cols}, Dtype::kI8);
  view.encoding = MatrixEncoding::kIntRows;
  view.name = codes.name;
  view.dtype = Dtype::kI8;
  view.data = codes.bytes.data();
  view.row_stride = view.cols;
  bind_row_zeros(module, div_ceil(view.cols, view.block_cols), view);
  ignore_input_scale(module + ".weight");
}

void IntTensors::ignore_input_scale(const std::string& weight_name) {
  const auto input = files_.find(module_of(weight_name) + ".input_scale");
  if (!input) return;
  used_.insert(input->name, 0);
  model_.ignored_tensors.push_back(std::string(input->name) + " (activations are not quantised)");
}

// Scales [out, groups], or one of the whole matrix, and zero points likewise.
void IntTensors::bind_row_zeros(const std::string& module, std::int64_t groups, MatrixView& view) {
  const QuantConfig& quant = model_.config.quant;
  const bool is_one = quant.group_size < 0;
  const TensorRef scales =
      take_scales(module + ".weight_scale", is_one ? Shape{1} : Shape{view.rows, groups});
  view.scales = scales.bytes.data();
  view.scale_dtype = scales.dtype;
  view.scale_row_stride = is_one ? 0 : groups;
  view.scale_col_stride = is_one ? 0 : 1;
  if (quant.is_symmetric) {
    // Some writers store them all the same, all zero.
    if (const auto zeros = files_.find(module + ".weight_zero_point")) {
      if (zeros->dtype == Dtype::kI8 && scan_values_ && !all_bytes_are(*zeros, std::byte{0})) {
        fail(module + ".weight_zero_point", "is not zero although config.json says symmetric");
      }
      used_.insert(zeros->name, 0);
      model_.ignored_tensors.push_back(std::string(zeros->name) + " (symmetric)");
    }
    return;
  }
  const std::string name = module + ".weight_zero_point";
  if (is_one) fail(name, "zero points of whole matrices are not supported");
  const TensorRef zeros =
      view.dtype == Dtype::kI8
          ? take(name, {view.rows, groups}, Dtype::kI8)
          : take(name, {div_ceil(view.rows * view.code_bits, 32), groups}, Dtype::kI32);
  view.zeros = zeros.bytes.data();
  view.zero_stride = groups;
}

}  // namespace moe::model
