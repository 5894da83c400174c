#include "lib/scripted_server/http_request.hpp"

#include <algorithm>
#include <charconv>

#include "lib/base/text.hpp"

namespace moe::scripted_server {
namespace {

constexpr std::size_t kMaxMethodBytes = 32;
constexpr std::size_t kMaxTargetBytes = 8192;
constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kMaxChunkLineBytes = 1024;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

// Whether the list "a, B ,c" names `token`.
bool list_has(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (equals_ignoring_case(item, token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

bool is_token_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool parse_size(std::string_view text, int base, std::size_t& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, base);
  return !text.empty() && error == std::errc() && rest == end;
}

}  // namespace

ReadState RequestReader::fail(int status) {
  status_ = status;
  buffer_.clear();
  position_ = searched_ = 0;
  return ReadState::kBad;
}

void RequestReader::drop_consumed() {
  buffer_.erase(0, position_);
  position_ = searched_ = 0;
}

bool RequestReader::take_line(std::string_view& line) {
  const std::size_t end = buffer_.find('\n', std::max(position_, searched_));
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line = std::string_view(buffer_).substr(position_, end - position_);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  position_ = end + 1;
  return true;
}

ReadState RequestReader::next(HttpRequest& request) {
  ReadState state = ReadState::kNeedsMore;
  if (stage_ == Stage::kHead) {
    state = read_head(request);
    if (state != ReadState::kComplete) return state;
  }
  state = is_chunked_ ? read_chunks(request) : read_body(request);
  if (state == ReadState::kNeedsMore && wants_continue_) {
    wants_continue_ = false;
    return ReadState::kWantsContinue;
  }
  if (state == ReadState::kComplete) {
    stage_ = Stage::kHead;
    drop_consumed();
  }
  return state;
}

bool RequestReader::read_request_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first) return false;
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  const bool is_known_version = version == "HTTP/1.1" || version == "HTTP/1.0";
  if (!is_known_version || !is_token(method) || method.size() > kMaxMethodBytes) return false;
  if (target.empty() || target.front() != '/' || target.size() > kMaxTargetBytes) return false;
  request.method = method;
  request.path = target.substr(0, target.find('?'));
  request.is_http_10 = version == "HTTP/1.0";
  request.keeps_alive = !request.is_http_10;
  return true;
}

bool RequestReader::read_header(std::string_view line, HttpRequest& request) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return false;
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  if (equals_ignoring_case(name, "content-length")) {
    std::size_t length = 0;
    if (!parse_size(value, 10, length)) return false;
    // Two lengths that differ are how requests are smuggled.
    if (has_length_ && length != body_left_) return false;
    has_length_ = true;
    body_left_ = length;
  } else if (equals_ignoring_case(name, "transfer-encoding")) {
    if (!equals_ignoring_case(value, "chunked")) return false;
    is_chunked_ = true;
  } else if (equals_ignoring_case(name, "connection")) {
    if (list_has(value, "close")) request.keeps_alive = false;
    if (list_has(value, "keep-alive")) request.keeps_alive = true;
  } else if (equals_ignoring_case(name, "expect")) {
    wants_continue_ = equals_ignoring_case(value, "100-continue");
  } else if (equals_ignoring_case(name, "x-request-id")) {
    request.request_id = printable(value.substr(0, kMaxIdBytes));
  } else if (equals_ignoring_case(name, "authorization")) {
    request.authorization = value;
  }
  return true;
}

ReadState RequestReader::read_head(HttpRequest& request) {
  std::string_view line;
  while (true) {
    const std::size_t begin = position_;
    const bool has_line = take_line(line);
    const std::size_t pending = has_line ? 0 : buffer_.size() - position_;
    head_bytes_ += position_ - begin;
    if (head_bytes_ + pending > kMaxHeaderBytes) return fail(431);
    if (!has_line) return ReadState::kNeedsMore;
    if (!has_request_line_) {
      if (line.empty()) continue;  // blank lines ahead of a request are allowed
      request = HttpRequest{};
      has_length_ = is_chunked_ = wants_continue_ = false;
      body_left_ = 0;
      if (!read_request_line(line, request)) return fail(400);
      has_request_line_ = true;
    } else if (line.empty()) {
      break;
    } else if (!read_header(line, request)) {
      return fail(400);
    }
  }
  has_request_line_ = false;
  head_bytes_ = 0;
  if (is_chunked_ && has_length_) return fail(400);
  if (body_left_ > kMaxBodyBytes) return fail(413);
  stage_ = is_chunked_ ? Stage::kChunkSize : Stage::kBody;
  drop_consumed();
  return ReadState::kComplete;
}

ReadState RequestReader::read_body(HttpRequest& request) {
  if (buffer_.size() - position_ < body_left_) return ReadState::kNeedsMore;
  request.body.assign(buffer_, position_, body_left_);
  position_ += body_left_;
  searched_ = position_;
  return ReadState::kComplete;
}

ReadState RequestReader::read_chunks(HttpRequest& request) {
  std::string_view line;
  while (true) {
    if (stage_ == Stage::kChunkData) {
      // The data and the line end behind it.
      const std::size_t there = std::min(buffer_.size() - position_, body_left_);
      request.body.append(buffer_, position_, there);
      position_ += there;
      body_left_ -= there;
      drop_consumed();
      if (body_left_ > 0) return ReadState::kNeedsMore;
      if (!take_line(line)) {
        return buffer_.size() > 1 ? fail(400) : ReadState::kNeedsMore;
      }
      if (!line.empty()) return fail(400);
      stage_ = Stage::kChunkSize;
    }
    if (!take_line(line)) {
      return buffer_.size() - position_ > kMaxChunkLineBytes + 1 ? fail(400)
                                                                 : ReadState::kNeedsMore;
    }
    if (line.size() > kMaxChunkLineBytes) return fail(400);
    if (stage_ == Stage::kTrailer) {
      head_bytes_ += line.size() + 2;
      if (head_bytes_ > kMaxHeaderBytes) return fail(431);
      if (!line.empty()) continue;
      head_bytes_ = 0;
      return ReadState::kComplete;
    }
    if (!parse_size(line.substr(0, line.find(';')), 16, body_left_)) return fail(400);
    if (body_left_ > kMaxBodyBytes - request.body.size()) return fail(413);
    stage_ = body_left_ == 0 ? Stage::kTrailer : Stage::kChunkData;
  }
}

}  // namespace moe::scripted_server
