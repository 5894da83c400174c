#pragma once

// Reads HTTP/1.x requests from bytes that arrive in any pieces. Hostile input ends in a status code
// to answer with, never in more memory than the limits.

#include <cstdint>
#include <string>
#include <string_view>

namespace moe::scripted_server {

inline constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxBodyBytes = std::size_t{64} << 20;

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  bool is_http_10 = false;
  bool keeps_alive = true;
  std::string request_id;     // X-Request-Id, cut to 128 printable bytes
  std::string authorization;  // as sent
  std::string body;
};

enum class ReadState : std::uint8_t {
  kNeedsMore,
  kWantsContinue,  // the client waits for "100 Continue"; said once a request
  kComplete,
  kBad,
};

class RequestReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }

  // Reads on in what has arrived. After kComplete `request` is whole and the next call starts on
  // the request behind it. After kBad the connection is of no more use.
  [[nodiscard]] ReadState next(HttpRequest& request);

  // After kBad: 400, 411, 413, 431 or 501.
  [[nodiscard]] int status() const { return status_; }
  // Bytes held: a pipelining client may not fill the memory while its reply is on the way.
  [[nodiscard]] std::size_t buffered_bytes() const { return buffer_.size(); }

 private:
  enum class Stage : std::uint8_t { kHead, kBody, kChunkSize, kChunkData, kTrailer };

  ReadState fail(int status);
  [[nodiscard]] ReadState read_head(HttpRequest& request);
  [[nodiscard]] bool read_request_line(std::string_view line, HttpRequest& request);
  [[nodiscard]] bool read_header(std::string_view line, HttpRequest& request);
  [[nodiscard]] ReadState read_body(HttpRequest& request);
  [[nodiscard]] ReadState read_chunks(HttpRequest& request);
  // The next line of the buffer without its end; false: not there in full.
  [[nodiscard]] bool take_line(std::string_view& line);
  void drop_consumed();

  std::string buffer_;
  std::size_t position_ = 0;  // consumed so far
  std::size_t searched_ = 0;  // no line end before this
  Stage stage_ = Stage::kHead;
  std::size_t head_bytes_ = 0;
  bool has_request_line_ = false;
  bool has_length_ = false;
  bool is_chunked_ = false;
  bool wants_continue_ = false;
  std::size_t body_left_ = 0;
  int status_ = 400;
};

}  // namespace moe::scripted_server
