#pragma once

// The place of an expected tensor in a BoundModel. Internal to the binder.

#include <vector>

#include "lib/model/bound_model.hpp"
#include "lib/model/expected_tensors.hpp"

namespace moe::model {

[[nodiscard]] LayerView& layer_at(BoundModel& model, const ExpectedTensor& expected);
// The routed experts of the tensor's layer, one view each.
[[nodiscard]] std::vector<FfnView>& experts_at(BoundModel& model, const ExpectedTensor& expected);
// Of a tensor whose slot is one matrix, or one vector.
[[nodiscard]] MatrixView& matrix_at(BoundModel& model, const ExpectedTensor& expected);
[[nodiscard]] VectorView& vector_at(BoundModel& model, const ExpectedTensor& expected);

}  // namespace moe::model
