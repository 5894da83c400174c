#include "lib/report/human.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lib/base/units.hpp"
#include "lib/json/write.hpp"
#include "lib/report/json_io.hpp"

namespace moe::report {
namespace {

// One code point of valid or broken UTF-8; moves `at` past it. A broken byte counts as itself.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const std::size_t length = byte < 0x80   ? 1
                             : byte < 0xc0 ? 1
                             : byte < 0xe0 ? 2
                             : byte < 0xf0 ? 3
                                           : 4;
  char32_t point = length == 1   ? byte
                   : length == 2 ? byte & 0x1fU
                   : length == 3 ? byte & 0x0fU
                                 : byte & 0x07U;
  std::size_t used = 1;
  while (used < length && at + used < text.size()) {
    const auto next = static_cast<unsigned char>(text[at + used]);
    if ((next & 0xc0U) != 0x80U) break;
    point = (point << 6U) | (next & 0x3fU);
    ++used;
  }
  at += used;
  return point;
}

// Control and bidirectional override characters.
bool is_control(char32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
         (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

bool is_wide(char32_t point) {
  return (point >= 0x1100 && point <= 0x115f) || (point >= 0x2e80 && point <= 0xa4cf) ||
         (point >= 0xac00 && point <= 0xd7a3) || (point >= 0xf900 && point <= 0xfaff) ||
         (point >= 0xfe30 && point <= 0xfe6f) || (point >= 0xff00 && point <= 0xff60) ||
         (point >= 0xffe0 && point <= 0xffe6) || (point >= 0x1f300 && point <= 0x1faff) ||
         (point >= 0x20000 && point <= 0x3fffd);
}

}  // namespace

std::string human_number(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double magnitude = std::abs(value);
  if (magnitude < 1e15 && std::floor(value) == value) return fmt::format("{:.0f}", value + 0.0);
  if (magnitude < 1e-4 || magnitude >= 1e15) return fmt::format("{:.3e}", value);
  const int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  return fmt::format("{:.{}f}", value, std::clamp(3 - exponent, 0, 7));
}

std::string human_unit(std::string_view unit) {
  return unit == "1" ? std::string() : std::string(unit);
}

std::string human_label(std::string_view name, std::string_view unit) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kSuffixes = {
      {{"s", "_s"},
       {"bytes", "_bytes"},
       {"bytes/s", "_bytes_per_s"},
       {"flop/s", "_flops_per_s"},
       {"ops/s", "_ops_per_s"},
       {"1", "_ratio"},
       {"J", "_j"},
       {"W", "_w"}}};
  for (const auto& [of, suffix] : kSuffixes) {
    if (unit == of && name.size() > suffix.size() && name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  }
  std::string label(name);
  // The rest of the rates keep their noun, which tells input from output: "output tokens/s".
  if (const auto at = label.rfind("_per_s"); at != std::string::npos && at + 6 == label.size()) {
    label.replace(at, 6, "/s");
  }
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

std::string human_value(double value, std::string_view unit) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (value == 0.0) return unit == "1" || unit.empty() ? "0" : fmt::format("0 {}", unit);
  const double magnitude = std::abs(value);
  const char* sign = value < 0.0 ? "-" : "";
  if (unit == "s") return fmt::format("{}{}", sign, format_duration(magnitude));
  if (unit == "bytes") return format_bytes_binary(value);
  if (unit == "bytes/s") return fmt::format("{}{}", sign, format_rate(magnitude, "B/s"));
  if (unit == "flop/s" || unit == "ops/s") {
    return fmt::format("{}{}", sign, format_rate(magnitude, unit));
  }
  if (unit == "1" || unit.empty()) return human_number(value);
  return fmt::format("{} {}", human_number(value), unit);
}

std::string human_beside(double value, double threshold, std::string_view unit) {
  const std::string name = human_unit(unit);
  const std::string suffix = fmt::format("{}{}", name.empty() ? "" : " ", name);
  const auto side = [threshold](double number) {
    return number < threshold ? -1 : number > threshold ? 1 : 0;
  };
  for (int digits = 4; digits < 17; ++digits) {
    const std::string text = fmt::format("{:.{}g}", value, digits);
    if (side(std::stod(text)) == side(value)) return text + suffix;
  }
  return fmt::format("{:.17g}{}", value, suffix);
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_code_point(text, at);
    const bool is_utf8 = at - begin > 1 || static_cast<unsigned char>(text[begin]) < 0x80;
    if (point == '\n' || point == '\t' || point == '\r') {
      out += ' ';
    } else if (!is_utf8 || is_control(point)) {
      out += '?';
    } else {
      out.append(text.substr(begin, at - begin));
    }
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    const bool is_combining = point >= 0x300 && point <= 0x36f;
    width += is_combining ? 0U : is_wide(point) ? 2U : 1U;
  }
  return width;
}

std::string human_result(ItemResult result) {
  std::string text = result == ItemResult::kNotMeasured     ? "not measured"
                     : result == ItemResult::kNotApplicable ? "not applicable"
                     : result == ItemResult::kPass          ? "pass"
                                                            : "fail";
  return text;
}

std::string count_results(const Acceptance& acceptance) {
  std::array<int, 4> counts{};
  for (const AcceptanceItem& item : acceptance.items) {
    ++counts[static_cast<std::size_t>(item.result)];
  }
  std::string text =
      fmt::format("{} pass, {} fail, {} not measured", counts[0], counts[1], counts[2]);
  if (counts[3] != 0) text += fmt::format(", {} not applicable", counts[3]);
  return text;
}

void require_finite(const Report& report) {
  json::require_finite(to_json(report), "report");
}

std::vector<std::string> headline(const Report& report) {
  const auto text = [](const json::Json& object, const char* key) {
    const bool there = object.is_object() && object.contains(key) && object[key].is_string();
    return there ? printable(object[key].get<std::string>()) : std::string();
  };
  std::vector<std::string> lines;
  std::string subject =
      fmt::format("{} {}", text(report.tool, "name"), text(report.tool, "version"));
  if (!text(report.subject, "name").empty()) {
    subject += fmt::format(": {} ({})", text(report.subject, "name"), text(report.subject, "kind"));
  }
  lines.push_back(std::move(subject));
  std::string run = text(report.run, "started_at");
  if (report.run.is_object() && report.run.contains("duration_s") &&
      report.run["duration_s"].is_number()) {
    run += fmt::format(", took {}", format_duration(report.run["duration_s"].get<double>()));
  }
  if (!run.empty()) lines.push_back(std::move(run));
  const json::Json& environment = report.environment;
  if (environment.is_object() && environment.contains("cpu") && environment["cpu"].is_object()) {
    const json::Json& cpu = environment["cpu"];
    std::string machine = text(environment, "host");
    if (!text(cpu, "model").empty()) machine += fmt::format(", {}", text(cpu, "model"));
    if (cpu.contains("num_usable_threads") && cpu["num_usable_threads"].is_number()) {
      machine += fmt::format(", {} threads", cpu["num_usable_threads"].get<std::int64_t>());
    }
    if (!text(cpu, "isa_in_use").empty()) machine += fmt::format(", {}", text(cpu, "isa_in_use"));
    lines.push_back(std::move(machine));
  }
  return lines;
}

}  // namespace moe::report
