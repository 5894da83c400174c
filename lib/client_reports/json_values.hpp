#pragma once

// Values of hostile JSON: absent, null or of the wrong type is absent; what is not finite is
// absent.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lib/json/read.hpp"

namespace moe::client_reports {

// The member at a path of keys, or null.
[[nodiscard]] const json::Json* member(const json::Json& object,
                                       std::initializer_list<const char*> path);
[[nodiscard]] std::optional<double> number(const json::Json& object,
                                           std::initializer_list<const char*> path);
// A count: a number of 0 or more, rounded.
[[nodiscard]] std::optional<std::int64_t> count(const json::Json& object,
                                                std::initializer_list<const char*> path);
[[nodiscard]] std::string text(const json::Json& object, std::initializer_list<const char*> path);
// The numbers of an array; others are left out.
[[nodiscard]] std::vector<double> numbers(const json::Json& object,
                                          std::initializer_list<const char*> path);

}  // namespace moe::client_reports
