#pragma once

// The head of an HTTP/1 answer, line by line, and what it says of the body behind it (RFC
// 9112, 6.3). Interim heads (1xx) are passed over.

#include <cstdint>
#include <optional>
#include <string_view>

namespace moe::client {

enum class BodyFraming : std::uint8_t { kEmpty, kChunks, kLength, kUntilClose };

class AnswerHead {
 public:
  // Without its end; an empty line ends the head. Lines after that are no part of it.
  void take_line(std::string_view line);

  [[nodiscard]] bool is_ended() const { return is_ended_; }
  // Not the head of an answer, or of one that cannot be read.
  [[nodiscard]] bool is_malformed() const { return is_malformed_; }
  // 0: not yet known.
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] bool is_http_11() const { return is_http_11_; }

  // Of a head that has ended.
  [[nodiscard]] BodyFraming framing() const;
  [[nodiscard]] std::uint64_t content_length() const { return content_length_.value_or(0); }
  // The connection ends with the answer.
  [[nodiscard]] bool closes() const {
    return closes_ || !is_http_11_ || framing() == BodyFraming::kUntilClose;
  }

 private:
  void take_length(std::string_view value);

  int status_ = 0;
  bool is_http_11_ = false;
  bool is_chunked_ = false;
  bool has_other_coding_ = false;
  bool closes_ = false;
  bool is_ended_ = false;
  bool is_malformed_ = false;
  std::optional<std::uint64_t> content_length_;
};

}  // namespace moe::client
