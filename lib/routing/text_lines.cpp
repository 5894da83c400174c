#include "lib/routing/text_lines.hpp"

#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"

namespace moe::routing {

TextLines::TextLines(SharedMap map)
    : map_(std::move(map)),
      text_(reinterpret_cast<const char*>(map_->bytes().data()), map_->bytes().size()),
      releaser_(map_.get()) {}

std::optional<std::string_view> TextLines::next() {
  while (at_ < text_.size()) {
    const std::string_view window = text_.substr(at_, kMaxLineBytes + 1);
    std::size_t length = window.find('\n');
    if (length == std::string_view::npos) {
      length = window.size();
      if (length > kMaxLineBytes) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}:{}: a line of more than {} MiB", map_->path().string(),
                                line_number_ + 1, kMaxLineBytes >> 20));
      }
    }
    std::string_view line = text_.substr(at_, length);
    releaser_.used_up_to(map_->bytes().data() + at_);
    at_ = std::min(at_ + length + 1, text_.size());
    ++line_number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!trim(line).empty()) return line;
  }
  return std::nullopt;
}

void TextLines::rewind() {
  at_ = 0;
  line_number_ = 0;
  releaser_ = PageReleaser(map_.get());
}

std::string TextLines::place() const {
  return fmt::format("{}:{}", map_->path().string(), line_number_);
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = line.find(separator);
    parts.push_back(line.substr(0, at));
    if (at == std::string_view::npos) return parts;
    line.remove_prefix(at + 1);
  }
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<double> to_real(std::string_view text) {
  return parse_number<double>(text);
}

}  // namespace moe::routing
