#pragma once

// Files for the tests of readers: recorded ones from tests/data/routing, and made ones.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lib/routing/sanity.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing::test {

[[nodiscard]] std::string data_file(const std::string& name);      // tests/data/routing/NAME
[[nodiscard]] std::string scenario_file(const std::string& name);  // scenarios/NAME

// The bytes of a .npy file of version 1; `numbers` as they lie in memory.
[[nodiscard]] std::string npy_bytes(std::string_view descr, const std::string& shape,
                                    std::string_view numbers);
// A zip archive of stored members.
struct Member {
  std::string name;
  std::string bytes;
};
[[nodiscard]] std::string zip_bytes(const std::vector<Member>& members);
// A safetensors file from a JSON header text and data.
[[nodiscard]] std::string safetensors_bytes(const std::string& header, std::string_view data);

template <typename Number>
[[nodiscard]] std::string raw(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

// Message of the Error(kInput) that opening and reading all of it throws; empty when none.
[[nodiscard]] std::string refusal_of(const std::string& path);

// Counts over the whole input, [layers, experts] of its info.
[[nodiscard]] std::vector<std::int64_t> totals_of(RoutingInput& input);

// Count of the finding of this code; 0 when there is none.
[[nodiscard]] std::int64_t finding_count(const InputCheck& check, const std::string& code);

}  // namespace moe::routing::test
