#include "lib/balance/loads.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::balance {

LoadMatrix make_loads(const std::vector<std::vector<std::int64_t>>& rows,
                      const std::string& where) {
  if (rows.empty() || rows.front().empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected counts of at least one layer and one expert", where));
  }
  LoadMatrix loads;
  loads.num_layers = static_cast<std::int32_t>(rows.size());
  loads.num_experts = static_cast<std::int32_t>(rows.front().size());
  loads.values.reserve(rows.size() * rows.front().size());
  for (std::size_t layer = 0; layer < rows.size(); ++layer) {
    if (rows[layer].size() != rows.front().size()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: layer {} has {} experts, layer 0 has {}", where, layer,
                              rows[layer].size(), rows.front().size()));
    }
    for (std::size_t expert = 0; expert < rows[layer].size(); ++expert) {
      const std::int64_t count = rows[layer][expert];
      if (count < 0) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: layer {}, expert {}: the count {} is negative; a 32-bit "
                                "counter wrapped, record shorter windows",
                                where, layer, expert, count));
      }
      loads.values.push_back(static_cast<double>(count));
    }
  }
  return loads;
}

void check_loads(const LoadMatrix& loads, const std::string& where) {
  const std::size_t expected =
      static_cast<std::size_t>(loads.num_layers) * static_cast<std::size_t>(loads.num_experts);
  if (loads.num_layers <= 0 || loads.num_experts <= 0 || loads.values.size() != expected) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected loads of at least one layer and one expert, found {} "
                            "values for {} layers x {} experts",
                            where, loads.values.size(), loads.num_layers, loads.num_experts));
  }
  for (std::size_t i = 0; i < loads.values.size(); ++i) {
    if (std::isfinite(loads.values[i]) && loads.values[i] >= 0.0) continue;
    const std::size_t num_experts = static_cast<std::size_t>(loads.num_experts);
    throw Error(ErrorCode::kInput,
                fmt::format("{}: layer {}, expert {}: expected a load of 0 or more, found {}",
                            where, i / num_experts, i % num_experts, loads.values[i]));
  }
}

double total(std::span<const double> layer_loads) {
  double sum = 0.0;
  for (const double load : layer_loads) sum += load;
  return sum;
}

LoadMatrix scaled_to_equal_totals(const LoadMatrix& loads) {
  LoadMatrix scaled = loads;
  const std::size_t num_experts = static_cast<std::size_t>(loads.num_experts);
  for (std::int32_t layer = 0; layer < loads.num_layers; ++layer) {
    const double sum = total(loads.layer(layer));
    if (sum <= 0.0) continue;
    const double factor = static_cast<double>(loads.num_experts) / sum;
    double* row = scaled.values.data() + static_cast<std::size_t>(layer) * num_experts;
    for (std::size_t expert = 0; expert < num_experts; ++expert) row[expert] *= factor;
  }
  return scaled;
}

}  // namespace moe::balance
