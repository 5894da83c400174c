#include "lib/engine/compare.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"

namespace moe::engine {
namespace {

constexpr double kRelativeTolerance = 1e-4;

std::string golden_name(std::string_view name, int layer) {
  return layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
}

void note_wrong(std::size_t index, std::int64_t cols, double expected, double found,
                TensorComparison& result) {
  if (result.num_wrong++ > 0) return;
  result.first_wrong_row = static_cast<std::int64_t>(index) / cols;
  result.first_wrong_col = static_cast<std::int64_t>(index) % cols;
  result.expected = expected;
  result.found = found;
}

}  // namespace

void compare_floats(const std::vector<float>& found, const std::vector<float>& expected,
                    std::int64_t cols, Tolerance tolerance, TensorComparison& result) {
  MOE_CHECK(found.size() == expected.size());
  result.num_values = static_cast<std::int64_t>(found.size());
  double largest = 0.0;
  for (const float value : expected) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto a = static_cast<double>(found[i]);
    const auto b = static_cast<double>(expected[i]);
    const double scale = tolerance == Tolerance::kLogits ? std::max(1.0, std::abs(b)) : largest;
    const double allowed = kRelativeTolerance * scale;
    const double error = std::abs(a - b);
    if (!(error <= allowed)) note_wrong(i, cols, b, a, result);  // NaN is wrong too
    if (std::isfinite(error)) {
      result.max_error = std::max(result.max_error, error);
      if (allowed > 0.0) result.max_error_ratio = std::max(result.max_error_ratio, error / allowed);
    }
  }
}

void compare_ids(const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& expected,
                 std::int64_t cols, TensorComparison& result) {
  MOE_CHECK(found.size() == expected.size());
  result.is_exact = true;
  result.num_values = static_cast<std::int64_t>(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != expected[i]) note_wrong(i, cols, expected[i], found[i], result);
  }
}

void Recorder::on_tensor(std::string_view name, int layer, const float* data, std::int64_t rows,
                         std::int64_t cols) {
  Floats& record = floats_[golden_name(name, layer)];
  record.cols = cols;
  record.values.insert(record.values.end(), data, data + rows * cols);
}

void Recorder::on_routing(int layer, std::int64_t num_tokens, int top_k, const std::int32_t* ids,
                          const float* weights, const SequenceId* /*sequences*/,
                          const std::int64_t* /*positions*/) {
  Ids& record = ids_[golden_name("sel_ids", layer)];
  record.cols = top_k;
  record.values.insert(record.values.end(), ids, ids + num_tokens * top_k);
  on_tensor("sel_w", layer, weights, num_tokens, top_k);
}

const Recorder::Floats* Recorder::floats(const std::string& name) const {
  const auto found = floats_.find(name);
  return found == floats_.end() ? nullptr : &found->second;
}

const Recorder::Ids* Recorder::ids(const std::string& name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? nullptr : &found->second;
}

}  // namespace moe::engine
