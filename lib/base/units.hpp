#pragma once

// Sizes, durations and rates as people write them. GB is 10^9 bytes, GiB is 2^30 bytes; both are
// always spelled.

#include <cstdint>
#include <string>
#include <string_view>

namespace moe {

inline constexpr double kMib = 1048576.0;
inline constexpr double kGib = 1073741824.0;
inline constexpr double kHour_s = 3600.0;
inline constexpr double kHoursPerYear = 8760.0;

// "64MiB", "1.5GB", "512" (bytes). Throws Error(kUsage) on anything else, on negative values and on
// overflow.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);

// "250ms", "30s", "2m", "1.5" (seconds). Throws Error(kUsage).
[[nodiscard]] double parse_duration_s(std::string_view text);

// "5%" or "0.05" -> 0.05. Throws Error(kUsage).
[[nodiscard]] double parse_ratio(std::string_view text);

[[nodiscard]] std::string format_bytes_binary(double bytes);  // "16.1 MiB"
[[nodiscard]] std::string format_duration(double seconds);    // "12.3 ms"
[[nodiscard]] std::string format_rate(double per_s,
                                      std::string_view unit);  // (3.2e10, "B/s") -> "32.0 GB/s"
[[nodiscard]] std::string format_count(double count);          // 8082240 -> "8.08 M"

}  // namespace moe
