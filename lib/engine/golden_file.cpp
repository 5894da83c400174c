#include "lib/engine/golden_file.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::engine {

GoldenFile::GoldenFile(const std::filesystem::path& path) : file_(path) {}

void GoldenFile::refuse(const std::string& name, const std::string& what) const {
  throw Error(ErrorCode::kInput,
              fmt::format("{}: tensor {}: {}; the file is not a golden file of this checkpoint",
                          file_.path().string(), name, what));
}

model::TensorRef GoldenFile::checked(const std::string& name, model::Dtype dtype, std::int64_t rows,
                                     std::int64_t cols) {
  const std::optional<model::TensorRef> tensor = file_.find(name);
  if (!tensor) refuse(name, "missing");
  if (tensor->dtype != dtype) {
    refuse(name, fmt::format("expected {}, found {}", model::dtype_name(dtype),
                             model::dtype_name(tensor->dtype)));
  }
  const std::int64_t found = tensor->shape.num_elements().value_or(-1);
  const bool has_rows = tensor->shape.rank() >= 1 && tensor->shape[0] == rows;
  if (!has_rows || found != rows * cols) {
    refuse(name, fmt::format("expected {} rows of {} values, found shape {}", rows, cols,
                             tensor->shape.to_string()));
  }
  read_.insert(name);
  return *tensor;
}

std::vector<float> GoldenFile::floats(const std::string& name, std::int64_t rows,
                                      std::int64_t cols) {
  std::vector<float> values = model::to_f32(checked(name, model::Dtype::kF32, rows, cols));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      refuse(name,
             fmt::format("value {} of row {} is not finite", static_cast<std::int64_t>(i) % cols,
                         static_cast<std::int64_t>(i) / cols));
    }
  }
  return values;
}

std::vector<std::int32_t> GoldenFile::ids(const std::string& name, std::int64_t rows,
                                          std::int64_t cols) {
  return model::to_i32(checked(name, model::Dtype::kI32, rows, cols));
}

std::vector<std::int32_t> GoldenFile::ids(const std::string& name) {
  const std::optional<model::TensorRef> tensor = file_.find(name);
  if (!tensor) refuse(name, "missing");
  if (tensor->shape.rank() != 1 || tensor->shape[0] < 1) {
    refuse(name,
           fmt::format("expected a list of token ids, found shape {}", tensor->shape.to_string()));
  }
  return ids(name, tensor->shape[0], 1);
}

std::vector<std::pair<std::string, std::string>> GoldenFile::metadata() const {
  constexpr std::array kKeys = {
      "case",   "family",         "seed",           "transformers",  "torch",         "numpy",
      "oracle", "min_router_gap", "min_argmax_gap", "config_sha256", "weights_sha256"};
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* key : kKeys) {
    if (const auto value = file_.metadata(key)) pairs.emplace_back(key, *value);
  }
  return pairs;
}

std::vector<std::string> GoldenFile::unread() const {
  std::vector<std::string> names;
  for (const model::TensorEntry& entry : file_.entries()) {
    if (!read_.contains(entry.name)) names.push_back(entry.name);
  }
  return names;
}

}  // namespace moe::engine
