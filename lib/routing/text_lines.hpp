#pragma once

// Lines of a mapped text file, one after the other; pages that were read are given back.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/routing/array_sources.hpp"
#include "lib/routing/readers.hpp"

namespace moe::routing {

class TextLines {
 public:
  // A line may hold 16 MiB; longer ones are no text of this kind.
  static constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

  explicit TextLines(SharedMap map);

  // The next line that is not blank, without its end (\n or \r\n). nullopt at the end of the file.
  // Throws Error(kInput) for a longer line.
  [[nodiscard]] std::optional<std::string_view> next();
  void rewind();
  [[nodiscard]] std::int64_t line_number() const {
    return line_number_;
  }                                         // of the last line, from 1
  [[nodiscard]] std::string place() const;  // "FILE:12"

 private:
  SharedMap map_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t line_number_ = 0;
  PageReleaser releaser_;
};

// Parts of a line between separators; empty parts stay.
[[nodiscard]] std::vector<std::string_view> split(std::string_view line, char separator);
// The whole text as a number, or nullopt.
[[nodiscard]] std::optional<std::int64_t> to_integer(std::string_view text);
[[nodiscard]] std::optional<double> to_real(std::string_view text);

}  // namespace moe::routing
