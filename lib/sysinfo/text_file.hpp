#pragma once

// Small text files of /proc and /sys. They are read whole: their size is reported as zero.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::sysinfo {

// The text, at most 1 MiB of it; nullopt when it cannot be read.
[[nodiscard]] std::optional<std::string> read_text(const std::filesystem::path& path);

// The first line without blanks at its ends; nullopt when the file cannot be read or is empty.
[[nodiscard]] std::optional<std::string> read_line(const std::filesystem::path& path);

// A whole decimal number in the first line; nullopt for anything else.
[[nodiscard]] std::optional<std::int64_t> read_integer(const std::filesystem::path& path);

// The value after "key" and a colon in "key<blanks>: value" lines, blanks at its ends removed.
[[nodiscard]] std::optional<std::string> find_value(std::string_view text, std::string_view key);

[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);

// "24576 kB" in bytes; nullopt for anything else.
[[nodiscard]] std::optional<std::int64_t> parse_kilobytes(const std::optional<std::string>& text);

// The numbers of a kernel list such as "0-3,8,10-11", which ascend; nullopt when it is malformed.
[[nodiscard]] std::optional<std::vector<std::int32_t>> parse_list(std::string_view list);

// How many numbers such a list holds.
[[nodiscard]] std::optional<std::int64_t> count_list(std::string_view list);

}  // namespace moe::sysinfo
