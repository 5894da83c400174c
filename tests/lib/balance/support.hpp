#pragma once

// Loads for the tests of lib/balance: recorded ones from tests/data/routing, and random ones.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/balance/loads.hpp"

namespace moe::balance::test {

// Expert counts of DeepSeek-V3 as SGLang records them, the 58 MoE layers.
[[nodiscard]] LoadMatrix dsv3_loads(const std::string& name);

[[nodiscard]] LoadMatrix loads_of(const std::vector<std::vector<double>>& rows);

// Log-normal loads, sigma 1.
[[nodiscard]] LoadMatrix random_loads(std::int32_t num_layers, std::int32_t num_experts,
                                      std::uint64_t seed);

// Chosen experts token by token of tests/data/routing/esft/NAME_topk.npy, 64 experts:
// ids[(token * layers + layer) * top_k + i].
struct TokenIds {
  std::int64_t num_tokens = 0;
  std::int64_t num_layers = 26;
  std::int64_t top_k = 6;
  std::vector<std::int32_t> ids;
};
[[nodiscard]] TokenIds esft_ids(const std::string& name);

// counts[layers, 64] of the tokens [begin, end).
[[nodiscard]] std::vector<std::int64_t> esft_counts(const TokenIds& tokens, std::int64_t begin,
                                                    std::int64_t end);

}  // namespace moe::balance::test
