#include "lib/base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

using Unit = std::pair<std::string_view, double>;

constexpr std::array<Unit, 11> kByteUnits = {{{"", 1.0},
                                              {"B", 1.0},
                                              {"kB", 1e3},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"KiB", 1024.0},
                                              {"MiB", 1048576.0},
                                              {"GiB", 1073741824.0},
                                              {"TiB", 1099511627776.0}}};
constexpr std::array<Unit, 6> kTimeUnits = {
    {{"", 1.0}, {"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60.0}, {"h", 3600.0}}};
constexpr std::array<Unit, 2> kRatioUnits = {{{"", 1.0}, {"%", 0.01}}};

// Splits "1.5GB" into number and unit, multiplies. `what` names the kind for the message.
template <std::size_t kCount>
double parse_with_units(std::string_view text, const std::array<Unit, kCount>& units,
                        std::string_view what, std::string_view example) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && std::isfinite(value) && value >= 0.0) {
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    for (const auto& [name, factor] : units) {
      if (suffix == name) return value * factor;
    }
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("expected {} such as {}, found \"{}\"", what, example, text));
}

struct Scaled {
  double value;
  std::string_view prefix;
};

// A value that one decimal would show as 1000.0 of a unit counts as 1.0 of the next.
constexpr double kRoundsUp = 0.99995;

Scaled scale_decimal(double value) {
  constexpr std::array<std::pair<double, std::string_view>, 5> kPrefixes = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1.0, ""}}};
  for (const auto& [factor, prefix] : kPrefixes) {
    if (std::abs(value) >= factor * kRoundsUp) return {value / factor, prefix};
  }
  return {value, ""};
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  const double bytes = parse_with_units(text, kByteUnits, "a size", "64MiB, 1.5GB or 4096");
  if (bytes >= 0x1.0p63) {
    throw Error(ErrorCode::kUsage, fmt::format("size \"{}\" is 2^63 bytes or more", text));
  }
  // 0.3KiB is 307 bytes; "1.5" and "0.3B" are a slip of the pen.
  const std::string_view last_two = text.substr(text.size() < 2 ? 0 : text.size() - 2);
  const bool is_scaled = last_two == "iB" || last_two == "kB" || last_two == "KB" ||
                         last_two == "MB" || last_two == "GB" || last_two == "TB";
  if (!is_scaled && bytes != std::floor(bytes)) {
    throw Error(ErrorCode::kUsage, fmt::format("expected whole bytes, found \"{}\"", text));
  }
  return static_cast<std::int64_t>(std::llround(bytes));
}

double parse_duration_s(std::string_view text) {
  return parse_with_units(text, kTimeUnits, "a duration", "250ms, 30s or 2m");
}

double parse_ratio(std::string_view text) {
  return parse_with_units(text, kRatioUnits, "a ratio", "5% or 0.05");
}

std::string format_bytes_binary(double bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t power = 0;
  while (std::abs(bytes) >= (power == 0 ? 1023.5 : 1023.95) && power + 1 < kNames.size()) {
    bytes /= 1024.0;
    ++power;
  }
  return power == 0 ? fmt::format("{:.0f} B", bytes)
                    : fmt::format("{:.1f} {}", bytes, kNames[power]);
}

std::string format_duration(double seconds) {
  const double size = std::abs(seconds);
  if (size >= 120.0) return fmt::format("{:.1f} min", seconds / 60.0);
  if (size >= 0.999995) return fmt::format("{:.2f} s", seconds);
  if (size >= 0.999995e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (size >= 0.9995e-6) return fmt::format("{:.1f} us", seconds * 1e6);
  return fmt::format("{:.0f} ns", seconds * 1e9);
}

std::string format_rate(double per_s, std::string_view unit) {
  const Scaled scaled = scale_decimal(per_s);
  return fmt::format("{:.1f} {}{}", scaled.value, scaled.prefix, unit);
}

std::string format_count(double count) {
  const Scaled scaled = scale_decimal(count);
  if (scaled.prefix.empty()) return fmt::format("{:.0f}", scaled.value);
  return fmt::format("{:.2f} {}", scaled.value, scaled.prefix);
}

}  // namespace moe
