#pragma once

// Tensors of the engine against tensors of a golden file, and a recorder of the former.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/engine/engine.hpp"
#include "lib/engine/verify.hpp"

namespace moe::engine {

enum class Tolerance : std::uint8_t {
  kLogits,  // |a - b| <= 1e-4 * max(1, |b|)
  kTensor,  // |a - b| <= 1e-4 * largest |b| of the tensor
};

// Fills counts, errors and the first wrong place of `result`; names are the caller's. Both hold
// [rows, cols] of the same size.
void compare_floats(const std::vector<float>& found, const std::vector<float>& expected,
                    std::int64_t cols, Tolerance tolerance, TensorComparison& result);
void compare_ids(const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& expected,
                 std::int64_t cols, TensorComparison& result);

// Keeps what the engine computes under the names of golden files.
class Recorder final : public TensorObserver, public RoutingObserver {
 public:
  struct Floats {
    std::vector<float> values;
    std::int64_t cols = 0;
  };
  struct Ids {
    std::vector<std::int32_t> values;
    std::int64_t cols = 0;
  };

  void clear() {
    floats_.clear();
    ids_.clear();
  }
  void on_tensor(std::string_view name, int layer, const float* data, std::int64_t rows,
                 std::int64_t cols) override;
  void on_routing(int layer, std::int64_t num_tokens, int top_k, const std::int32_t* ids,
                  const float* weights, const SequenceId* sequences,
                  const std::int64_t* positions) override;

  // Everything recorded under the name since clear(); null when there is nothing.
  [[nodiscard]] const Floats* floats(const std::string& name) const;
  [[nodiscard]] const Ids* ids(const std::string& name) const;

 private:
  std::map<std::string, Floats> floats_;
  std::map<std::string, Ids> ids_;
};

}  // namespace moe::engine
