#pragma once

// Small checked readers for the files of scenarios/measured and scenarios/anchors.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "lib/json/read.hpp"

namespace moe::planner {

// The array under `key`; throws Error(kInput) when it is not one.
[[nodiscard]] const json::Json& array_at(const json::Json& object, const char* key,
                                         const std::string& where);
[[nodiscard]] const json::Json& object_at(const json::Json& object, const char* key,
                                          const std::string& where);
[[nodiscard]] std::string text_at(const json::Json& object, const char* key,
                                  const std::string& where);
// A finite number within [min, max].
[[nodiscard]] double number_at(const json::Json& object, const char* key, double min, double max,
                               const std::string& where);
[[nodiscard]] double number_or(const json::Json& object, const char* key, double otherwise,
                               double min, double max, const std::string& where);
[[nodiscard]] std::string text_or(const json::Json& object, const char* key,
                                  const std::string& otherwise, const std::string& where);

}  // namespace moe::planner
