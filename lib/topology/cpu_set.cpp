#include "lib/topology/cpu_set.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "lib/base/parse_number.hpp"

namespace moe::topology {
namespace {

// Words of a mask that can matter, and so the longest text worth reading.
constexpr std::size_t kMaxWords = (static_cast<std::size_t>(kMaxNumber) + 1) / 32;

std::optional<std::int32_t> parse_cpu(std::string_view text) {
  const std::optional<std::int32_t> value = parse_number<std::int32_t>(text);
  return value && *value >= 0 && *value <= kMaxNumber ? value : std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

}  // namespace

NumberSet::NumberSet(std::vector<NumberRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const NumberRange& a, const NumberRange& b) { return a.first < b.first; });
  for (const NumberRange& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

std::int64_t NumberSet::size() const {
  std::int64_t count = 0;
  for (const NumberRange& range : ranges_) count += range.last - range.first + 1;
  return count;
}

bool NumberSet::intersects(const NumberSet& other) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const NumberRange& a) {
    return std::any_of(other.ranges_.begin(), other.ranges_.end(), [&](const NumberRange& b) {
      return a.first <= b.last && b.first <= a.last;
    });
  });
}

std::string NumberSet::to_string() const {
  std::string text;
  for (const NumberRange& range : ranges_) {
    if (!text.empty()) text += ',';
    text += range.first == range.last ? fmt::format("{}", range.first)
                                      : fmt::format("{}-{}", range.first, range.last);
  }
  return text;
}

std::optional<NumberSet> parse_number_list(std::string_view text) {
  if (text.empty() || text.size() > 4096) return std::nullopt;
  std::vector<NumberRange> ranges;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t dash = item.find('-');
    const auto first = parse_cpu(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_cpu(item.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    ranges.push_back({*first, *last});
  }
  return NumberSet(std::move(ranges));
}

std::optional<NumberSet> parse_mask(std::string_view text) {
  const std::vector<std::string_view> words = split(text, ',');
  if (text.empty() || words.size() > kMaxWords) return std::nullopt;
  std::vector<NumberRange> ranges;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view digits = words[words.size() - 1 - i];
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    if (digits.size() > 8) return std::nullopt;
    std::uint32_t bits = 0;
    if (!digits.empty()) {
      const char* end = digits.data() + digits.size();
      const auto [rest, error] = std::from_chars(digits.data(), end, bits, 16);
      if (error != std::errc() || rest != end) return std::nullopt;
    }
    for (std::int32_t bit = 0; bit < 32; ++bit) {
      const std::int32_t number = static_cast<std::int32_t>(i) * 32 + bit;
      if ((bits >> bit) & 1U) ranges.push_back({number, number});
    }
  }
  return NumberSet(std::move(ranges));
}

}  // namespace moe::topology
