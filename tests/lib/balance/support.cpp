#include "tests/lib/balance/support.hpp"

#include <cmath>
#include <cstddef>
#include <span>

#include <nlohmann/json.hpp>

#include "lib/base/file_map.hpp"
#include "lib/base/rng.hpp"
#include "lib/json/read.hpp"

namespace moe::balance::test {

LoadMatrix loads_of(const std::vector<std::vector<double>>& rows) {
  LoadMatrix loads;
  loads.num_layers = static_cast<std::int32_t>(rows.size());
  loads.num_experts = static_cast<std::int32_t>(rows.front().size());
  for (const std::vector<double>& row : rows) {
    loads.values.insert(loads.values.end(), row.begin(), row.end());
  }
  return loads;
}

LoadMatrix dsv3_loads(const std::string& name) {
  const json::Json document =
      json::parse_file(MOE_SOURCE_DIR "/tests/data/routing/sglang_dsv3/" + name + ".json");
  std::vector<std::vector<double>> rows;
  for (const json::Json& row : document.at("logical_count")) {
    std::vector<double> counts = row.get<std::vector<double>>();
    if (total(counts) > 0.0) rows.push_back(std::move(counts));
  }
  return loads_of(rows);
}

LoadMatrix random_loads(std::int32_t num_layers, std::int32_t num_experts, std::uint64_t seed) {
  LoadMatrix loads;
  loads.num_layers = num_layers;
  loads.num_experts = num_experts;
  Rng rng(seed);
  for (std::int32_t i = 0; i < num_layers * num_experts; ++i) {
    loads.values.push_back(std::floor(1000.0 * std::exp(rng.next_normal())));
  }
  return loads;
}

TokenIds esft_ids(const std::string& name) {
  const FileMap file(MOE_SOURCE_DIR "/tests/data/routing/esft/" + name + "_topk.npy");
  const std::span<const std::byte> bytes = file.bytes();
  // npy version 1: magic, version, two bytes of header length, header; then uint8 values.
  const std::size_t begin =
      10 + std::to_integer<std::size_t>(bytes[8]) + 256 * std::to_integer<std::size_t>(bytes[9]);
  TokenIds tokens;
  for (std::size_t i = begin; i < bytes.size(); ++i) {
    tokens.ids.push_back(std::to_integer<std::int32_t>(bytes[i]));
  }
  tokens.num_tokens =
      static_cast<std::int64_t>(tokens.ids.size()) / (tokens.num_layers * tokens.top_k);
  return tokens;
}

std::vector<std::int64_t> esft_counts(const TokenIds& tokens, std::int64_t begin,
                                      std::int64_t end) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(tokens.num_layers) * 64, 0);
  const std::int64_t per_token = tokens.num_layers * tokens.top_k;
  for (std::int64_t i = begin * per_token; i < end * per_token; ++i) {
    const std::int64_t layer = i % per_token / tokens.top_k;
    ++counts[static_cast<std::size_t>(layer * 64 + tokens.ids[static_cast<std::size_t>(i)])];
  }
  return counts;
}

}  // namespace moe::balance::test
