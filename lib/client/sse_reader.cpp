#include "lib/client/sse_reader.hpp"

#include <cstring>

namespace moe::client {

std::size_t SseReader::line_end(std::string_view bytes) {
  const void* lf = std::memchr(bytes.data(), '\n', bytes.size());
  const std::size_t length =
      lf == nullptr ? bytes.size()
                    : static_cast<std::size_t>(static_cast<const char*>(lf) - bytes.data());
  const void* cr = std::memchr(bytes.data(), '\r', length);
  if (cr != nullptr) return static_cast<std::size_t>(static_cast<const char*>(cr) - bytes.data());
  return lf == nullptr ? std::string_view::npos : length;
}

bool SseReader::take_line(std::string_view line) {
  const bool is_stable = partial_.empty();
  if (!is_stable) {
    keep_partial(line);
    if (is_overflown_) return false;
    line = partial_;
  }
  if (is_first_line_) {
    is_first_line_ = false;
    if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  }
  const bool ends_event = line.empty();
  if (!ends_event) take_field(line, is_stable);
  partial_.clear();
  return ends_event && has_data_;
}

void SseReader::take_field(std::string_view line, bool is_stable) {
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (name != "data" && name != "error") return;
  std::string_view value;
  if (colon != std::string_view::npos) value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "error") is_error_field_ = true;
  add_data(value, is_stable);
}

void SseReader::add_data(std::string_view value, bool is_stable) {
  if (!has_data_ && is_stable && !value.empty()) {
    view_ = value;
  } else {
    keep_data();
    if (data_.size() + value.size() > kMaxEventBytes) {
      is_overflown_ = true;
      return;
    }
    if (has_data_) data_.push_back('\n');
    data_.append(value);
  }
  has_data_ = true;
}

void SseReader::keep_partial(std::string_view bytes) {
  if (partial_.size() + bytes.size() > kMaxEventBytes) {
    is_overflown_ = true;
    return;
  }
  partial_.append(bytes);
}

void SseReader::keep_data() {
  if (view_.data() == nullptr) return;
  data_.assign(view_);
  view_ = {};
}

void SseReader::end_of_body() {
  std::string_view line = partial_;
  if (line.starts_with("data:")) {
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    // Anything else that was cut is not an event, and a piece of JSON would only look like one.
    if (line == "[DONE]" && !has_data_) {
      data_ = line;
      has_data_ = true;
    }
  }
  partial_.clear();
}

}  // namespace moe::client
