#pragma once

// The tensors behind a matrix of integer codes: GPTQ, AWQ, compressed-tensors. Internal to the
// binder.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/name_map.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/tensor_files.hpp"

namespace moe::model {

class IntTensors {
 public:
  // Names of the tensors taken go to `used`; what has to be kept goes to `model`.
  IntTensors(BoundModel& model, const TensorFiles& files, bool scan_values, NameMap& used)
      : model_(model), files_(files), scan_values_(scan_values), used_(used) {}

  // Whether the files hold "MODULE.weight" as codes.
  [[nodiscard]] bool has(const std::string& weight_name) const;
  // Throws Error(kInput) naming the tensor at fault.
  [[nodiscard]] MatrixView bind(const std::string& weight_name, std::int64_t rows,
                                std::int64_t cols);
  // Leaves out the scale of static activations beside "MODULE.weight", if there is one: products
  // here do not quantise activations.
  void ignore_input_scale(const std::string& weight_name);

 private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const;
  TensorRef take(const std::string& name, const Shape& shape, Dtype dtype);
  TensorRef take_scales(const std::string& name, const Shape& shape);
  void bind_words(const std::string& module, MatrixView& view);
  void bind_packed_rows(const std::string& module, MatrixView& view);
  void bind_bytes(const std::string& module, MatrixView& view);
  void bind_row_zeros(const std::string& module, std::int64_t groups, MatrixView& view);
  void set_gptq_zeros(const TensorRef& zeros, MatrixView& view);
  void set_column_order(const std::string& name, MatrixView& view);

  BoundModel& model_;
  const TensorFiles& files_;
  bool scan_values_;
  NameMap& used_;
};

}  // namespace moe::model
