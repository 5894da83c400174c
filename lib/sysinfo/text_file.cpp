#include "lib/sysinfo/text_file.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>

#include "lib/base/text.hpp"

namespace moe::sysinfo {

std::optional<std::string> read_text(const std::filesystem::path& path) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 4096> chunk{};
  while (text.size() < kMaxBytes) {
    const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get());
    if (count == 0) break;
    text.append(chunk.data(), count);
  }
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

std::optional<std::string> read_line(const std::filesystem::path& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  const std::string_view line = trim(std::string_view(*text).substr(0, text->find('\n')));
  if (line.empty()) return std::nullopt;
  return std::string(line);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::optional<std::int64_t> read_integer(const std::filesystem::path& path) {
  const auto line = read_line(path);
  return line ? parse_integer(*line) : std::nullopt;
}

std::optional<std::string> find_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key) {
      return std::string(trim(line.substr(colon + 1)));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::optional<std::int64_t> parse_kilobytes(const std::optional<std::string>& text) {
  if (!text || !text->ends_with(" kB")) return std::nullopt;
  const auto value = parse_integer(trim(std::string_view(*text).substr(0, text->size() - 3)));
  if (!value || *value < 0 || *value > (std::int64_t{1} << 52)) return std::nullopt;
  return *value * 1024;
}

std::optional<std::vector<std::int32_t>> parse_list(std::string_view list) {
  constexpr std::int64_t kMaxNumber = 1 << 20;
  std::vector<std::int32_t> numbers;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view part = list.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_integer(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_integer(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxNumber) return std::nullopt;
    if (!numbers.empty() && *first <= numbers.back()) return std::nullopt;
    for (std::int64_t number = *first; number <= *last; ++number) {
      numbers.push_back(static_cast<std::int32_t>(number));
    }
    if (comma == std::string_view::npos) return numbers;
    list.remove_prefix(comma + 1);
    if (list.empty()) return std::nullopt;
  }
  return numbers;
}

std::optional<std::int64_t> count_list(std::string_view list) {
  const auto numbers = parse_list(list);
  if (!numbers) return std::nullopt;
  return static_cast<std::int64_t>(numbers->size());
}

}  // namespace moe::sysinfo
