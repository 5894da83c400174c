#include "lib/client/answer_head.hpp"

#include <algorithm>

namespace moe::client {
namespace {

// 10^18 bytes and more are no body.
constexpr std::size_t kMaxLengthDigits = 18;

// Letters of both cases are one in the names and words of a head; `word` is in lower case.
bool starts_with_word(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char byte = text[i];
    const char lower = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
    if (lower != word[i]) return false;
  }
  return true;
}

bool is_field(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' && starts_with_word(line, name);
}

std::string_view value_of(std::string_view line) {
  line.remove_prefix(line.find(':') + 1);
  const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(begin);
  return line.substr(0, line.find_last_not_of(" \t") + 1);
}

// Calls visit(word) for each word of a list, without what follows its semicolon.
template <typename Visit>
void for_each_word(std::string_view list, Visit&& visit) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const std::size_t begin = entry.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    const std::size_t end = std::min(entry.find_first_of(" \t;", begin), entry.size());
    visit(entry.substr(begin, end - begin));
  }
}

bool is_word(std::string_view text, std::string_view word) {
  return text.size() == word.size() && starts_with_word(text, word);
}

// Of "HTTP/1.1 200 OK"; 0 when there is none.
int status_of(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank + 4 > line.size()) return 0;
  int status = 0;
  for (const char digit : line.substr(blank + 1, 3)) {
    if (digit < '0' || digit > '9') return 0;
    status = status * 10 + (digit - '0');
  }
  return status;
}

}  // namespace

void AnswerHead::take_line(std::string_view line) {
  if (is_ended_ || is_malformed_) return;
  if (status_ == 0) {
    status_ = status_of(line);
    is_http_11_ = line.starts_with("HTTP/1.1 ");
    is_malformed_ = status_ < 100 || !line.starts_with("HTTP/1.");
  } else if (line.empty()) {
    if (status_ / 100 == 1 && status_ != 101) {
      *this = AnswerHead{};
    } else {
      is_ended_ = true;
      is_malformed_ = has_other_coding_;
    }
  } else if (is_field(line, "transfer-encoding")) {
    for_each_word(value_of(line), [&](std::string_view word) {
      is_chunked_ = is_chunked_ || is_word(word, "chunked");
      has_other_coding_ =
          has_other_coding_ || (!is_word(word, "chunked") && !is_word(word, "identity"));
    });
  } else if (is_field(line, "connection")) {
    for_each_word(value_of(line),
                  [&](std::string_view word) { closes_ = closes_ || is_word(word, "close"); });
  } else if (is_field(line, "content-length")) {
    take_length(value_of(line));
  }
}

void AnswerHead::take_length(std::string_view value) {
  std::uint64_t length = 0;
  const bool is_number = !value.empty() && value.size() <= kMaxLengthDigits &&
                         value.find_first_not_of("0123456789") == std::string_view::npos;
  if (is_number) {
    for (const char digit : value) length = length * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  is_malformed_ = !is_number || (content_length_ && *content_length_ != length);
  content_length_ = length;
}

BodyFraming AnswerHead::framing() const {
  if (status_ == 204 || status_ == 304) return BodyFraming::kEmpty;
  if (is_chunked_) return BodyFraming::kChunks;
  if (!content_length_) return BodyFraming::kUntilClose;
  return *content_length_ == 0 ? BodyFraming::kEmpty : BodyFraming::kLength;
}

}  // namespace moe::client
