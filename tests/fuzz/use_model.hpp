#pragma once

// What fuzzers of model readers share.

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::fuzz {

inline void expect_one_line(const Error& error) {
  const std::string_view message = error.what();
  MOE_CHECK(message.find('\n') == std::string_view::npos);
  MOE_CHECK(first_invalid_utf8(message) == message.size());
}

// Every row of every matrix and every element of every vector.
inline void read_everything(const model::BoundModel& model) {
  const auto read_matrix = [](model::Part, std::int32_t, std::int32_t,
                              const model::MatrixView& view) {
    std::vector<float> row(static_cast<std::size_t>(view.cols));
    for (std::int64_t r = 0; r < view.rows; ++r) model::read_matrix_row(view, r, row.data());
  };
  const auto read_all = [](model::Part, std::int32_t, std::int32_t, const model::VectorView& view) {
    MOE_CHECK(static_cast<std::int64_t>(model::read_vector(view).size()) == view.size);
  };
  model::for_each_weight(model, {read_matrix, read_all});
}

}  // namespace moe::fuzz
