#pragma once

// A strict JSON reader for hostile input: UTF-8 only, no duplicate keys, no trailing text, no NaN
// or infinity (a number too large for a double counts as one), bounded size and depth. Key order is
// kept.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace moe::json {

using Json = nlohmann::ordered_json;

struct ReadLimits {
  std::int64_t max_bytes = std::int64_t{64} << 20;
  int max_depth = 64;
  // Published configs hold the literal Infinity in places; accepted as a string "Infinity" when
  // set.
  bool allow_infinity_literal = false;
};

// `where` names the source in messages ("config.json"). Throws Error(kInput): "config.json:
// duplicate key \"hidden_size\"".
[[nodiscard]] Json parse(std::string_view text, const std::string& where,
                         const ReadLimits& limits = {});

// The same for a file; `where` is its path.
[[nodiscard]] Json parse_file(const std::string& path, const ReadLimits& limits = {});

}  // namespace moe::json
