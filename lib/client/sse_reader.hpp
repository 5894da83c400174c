#pragma once

// Server-sent events from bytes that arrive in any pieces (WHATWG HTML, 9.2.6): LF, CRLF and CR end
// a line, comments and unknown fields are passed over, several data lines are joined with LF, the
// blank after the colon is optional, a byte order mark at the start is dropped. Line ends inside
// JSON strings such as U+2028 are text here, as the standard says.
//
// Beside the standard: an event that the end of the body cuts off is given out when its last line
// is whole or is [DONE], and a field "error" (older llama.cpp) is an event of its own.

#include <cstdint>
#include <string>
#include <string_view>

namespace moe::client {

struct SseEvent {
  std::string_view data;  // valid during the call only
  bool is_error_field = false;
};

class SseReader {
 public:
  // No event may be larger; the reader stops at one that is.
  static constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;

  // Calls sink(const SseEvent&) for each event that these bytes complete.
  template <typename Sink>
  void feed(std::string_view bytes, Sink&& sink) {
    while (!bytes.empty() && !is_overflown_) {
      if (skips_lf_ && bytes.front() == '\n') bytes.remove_prefix(1);
      skips_lf_ = false;
      const std::size_t end = line_end(bytes);
      if (end == std::string_view::npos) {
        keep_partial(bytes);
        break;
      }
      if (take_line(bytes.substr(0, end))) emit(sink);
      skips_lf_ = bytes[end] == '\r';
      bytes.remove_prefix(end + 1);
    }
    keep_data();
  }

  // The body has ended.
  template <typename Sink>
  void finish(Sink&& sink) {
    end_of_body();
    if (has_data_ && !is_overflown_) emit(sink);
  }

  [[nodiscard]] bool is_overflown() const { return is_overflown_; }
  // What the next bytes meet is the same.
  friend bool operator==(const SseReader&, const SseReader&) = default;

 private:
  static std::size_t line_end(std::string_view bytes);
  // True when the line ends an event that has data.
  bool take_line(std::string_view line);
  void take_field(std::string_view line, bool is_stable);
  void add_data(std::string_view value, bool is_stable);
  void keep_partial(std::string_view bytes);
  void keep_data();
  void end_of_body();

  template <typename Sink>
  void emit(Sink& sink) {
    sink(SseEvent{view_.data() != nullptr ? view_ : std::string_view(data_), is_error_field_});
    view_ = {};
    data_.clear();
    has_data_ = false;
    is_error_field_ = false;
  }

  std::string partial_;    // of a line
  std::string data_;       // of the event so far
  std::string_view view_;  // the event's only data line, inside the bytes being fed
  bool has_data_ = false;
  bool is_error_field_ = false;
  bool skips_lf_ = false;  // the last byte was a CR
  bool is_first_line_ = true;
  bool is_overflown_ = false;
};

}  // namespace moe::client
