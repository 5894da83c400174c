#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/app/cli.hpp"
#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

// A list option sweeps a product; nobody means more values than this.
constexpr std::size_t kMaxListLength = 256;

[[noreturn]] void fail(std::string_view option, const std::string& message) {
  throw Error(ErrorCode::kUsage, fmt::format("{}: {}", option, message));
}

// "-q, --quiet" from "-q,--quiet"; the long name alone for messages.
std::string spaced(const std::string& names) {
  std::string out;
  for (const char c : names) {
    out += c;
    if (c == ',') out += ' ';
  }
  return out;
}

std::string long_name(const std::string& names) {
  const std::size_t at = names.find("--");
  return at == std::string::npos ? names : names.substr(at, names.find(',', at) - at);
}

std::string describe(IntRange range) {
  const IntRange any;
  if (range.max == any.max) return fmt::format("an integer of {} or more", range.min);
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::int64_t parse_integer(std::string_view text, IntRange range, std::string_view option) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < range.min || *value > range.max) {
    fail(option, fmt::format("expected {}, found \"{}\"", describe(range), text));
  }
  return *value;
}

double parse_real(std::string_view text, RealRange range, std::string_view option) {
  const auto value = parse_number<double>(text);
  if (!value || *value < range.min || *value > range.max) {
    const std::string upper =
        range.max == RealRange{}.max ? std::string(" or more") : fmt::format(" to {}", range.max);
    fail(option, fmt::format("expected a number of {}{}, found \"{}\"", range.min, upper, text));
  }
  return *value;
}

// Runs a parser of lib/base and puts the option's name before its message.
template <typename Parse>
auto parse_named(const std::string& option, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace

std::vector<std::int64_t> parse_integers(std::string_view text, IntRange range,
                                         std::string_view option) {
  std::vector<std::int64_t> values;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, comma - begin);
    if (item.empty()) fail(option, fmt::format("empty value in the list \"{}\"", text));
    values.push_back(parse_integer(item, range, option));
    if (values.size() > kMaxListLength) {
      fail(option, fmt::format("expected at most {} values", kMaxListLength));
    }
    if (comma == text.size()) return values;
    begin = comma + 1;
  }
}

std::string format_integers(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

void Options::add(const std::string& names, const std::string& value_name, const std::string& help,
                  const std::string& default_value, bool is_repeatable,
                  std::function<void(const std::vector<std::string>&)> set) {
  option_help_.push_back({group_, spaced(names), value_name, help, default_value});
  bind_(names, value_name.empty(), is_repeatable, std::move(set));
}

void Options::positional(const std::string& name, std::string& target, const std::string& help) {
  positional_help_.push_back({name, help});
  bind_(name, false, false,
        [&target](const std::vector<std::string>& values) { target = values.back(); });
}

void Options::positionals(const std::string& name, std::vector<std::string>& target,
                          const std::string& help) {
  positional_help_.push_back({name + " ...", help});
  bind_(name, false, true, [&target](const std::vector<std::string>& values) { target = values; });
}

void Options::flag(const std::string& names, bool& target, const std::string& help) {
  add(names, "", help, "", false, [&target](const std::vector<std::string>&) { target = true; });
}

void Options::text(const std::string& names, const std::string& value_name, std::string& target,
                   const std::string& help) {
  add(names, value_name, help, target, false,
      [&target](const std::vector<std::string>& values) { target = values.back(); });
}

void Options::texts(const std::string& names, const std::string& value_name,
                    std::vector<std::string>& target, const std::string& help) {
  add(names, value_name, help, "", true,
      [&target](const std::vector<std::string>& values) { target = values; });
}

void Options::choice(const std::string& names, const std::vector<std::string>& choices,
                     std::string& target, const std::string& help) {
  add(names, fmt::format("{}", fmt::join(choices, "|")), help, target, false,
      [&target, choices, name = long_name(names)](const std::vector<std::string>& values) {
        if (std::find(choices.begin(), choices.end(), values.back()) == choices.end()) {
          fail(name, fmt::format("expected one of {}, found \"{}\"", fmt::join(choices, ", "),
                                 values.back()));
        }
        target = values.back();
      });
}

void Options::integer(const std::string& names, std::int64_t& target, IntRange range,
                      const std::string& help, const std::string& default_text) {
  add(names, "N", help, default_text.empty() ? fmt::format("{}", target) : default_text, false,
      [&target, range, name = long_name(names)](const std::vector<std::string>& values) {
        target = parse_integer(values.back(), range, name);
      });
}

void Options::integers(const std::string& names, std::vector<std::int64_t>& target, IntRange range,
                       const std::string& help) {
  add(names, "N,N,...", help, format_integers(target), false,
      [&target, range, name = long_name(names)](const std::vector<std::string>& values) {
        target = parse_integers(values.back(), range, name);
      });
}

void Options::real(const std::string& names, double& target, RealRange range,
                   const std::string& help) {
  add(names, "X", help, fmt::format("{}", target), false,
      [&target, range, name = long_name(names)](const std::vector<std::string>& values) {
        target = parse_real(values.back(), range, name);
      });
}

void Options::bytes(const std::string& names, std::int64_t& target, const std::string& help,
                    const std::string& default_text) {
  const std::string shown =
      default_text.empty() ? format_bytes_binary(static_cast<double>(target)) : default_text;
  add(names, "SIZE", help, shown, false,
      [&target, name = long_name(names)](const std::vector<std::string>& values) {
        target = parse_named(name, values.back(), parse_bytes);
      });
}

void Options::duration(const std::string& names, double& target_s, const std::string& help,
                       const std::string& default_text) {
  const std::string shown = default_text.empty() ? fmt::format("{}s", target_s) : default_text;
  add(names, "TIME", help, shown, false,
      [&target_s, name = long_name(names)](const std::vector<std::string>& values) {
        target_s = parse_named(name, values.back(), parse_duration_s);
      });
}

void Options::ratio(const std::string& names, std::optional<double>& target,
                    const std::string& help, const std::string& default_text) {
  add(names, "PERCENT", help, default_text, false,
      [&target, name = long_name(names)](const std::vector<std::string>& values) {
        target = parse_named(name, values.back(), parse_ratio);
      });
}

void Options::example(const std::string& command_line, const std::string& meaning) {
  examples_.push_back({command_line, meaning});
}

}  // namespace moe::app
