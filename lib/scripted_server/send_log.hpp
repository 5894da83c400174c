#pragma once

// When each byte left, beside when it was due. Times of requests are readings of CLOCK_MONOTONIC,
// so that a client on the same machine can be compared directly; those of sends count from the
// start of the reply.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/scripted_server/timeline.hpp"

namespace moe::scripted_server {

struct SendRecord {
  double due_s = 0.0;
  double left_s = 0.0;  // the last byte was in the kernel
  std::int32_t tokens = 0;
  PieceKind kind = PieceKind::kHeaders;
};

enum class ReplyEnd : std::uint8_t {
  kComplete,    // a reply that a client must count as a success
  kFailed,      // as the script says
  kClientLeft,  // the client closed or reset the connection before the end
  kServerDied,  // the script ended the server
  kStopped,     // the server was stopped
};
[[nodiscard]] const char* reply_end_name(ReplyEnd end);

struct RequestRecord {
  std::int64_t index = 0;  // in order of arrival
  std::string request_id;  // the client's X-Request-Id
  bool is_chat = false;
  bool is_stream = false;
  std::int64_t prompt_tokens = 0;
  std::int64_t asked_tokens = 0;
  std::int64_t tokens = 0;  // that left
  double arrived_s = 0.0;
  double started_s = 0.0;  // got a slot; due_s and left_s count from here
  double ended_s = 0.0;
  ReplyEnd end = ReplyEnd::kComplete;
  std::vector<SendRecord> sends;
};

struct ServerLog {
  std::vector<RequestRecord> requests;  // in the order of their ends
  std::int64_t connections = 0;
  std::int64_t bad_requests = 0;  // refused with 4xx or 501
};

// One line of JSON, without the line end.
[[nodiscard]] std::string log_line(const RequestRecord& record);

// left_s - due_s of every send of every request.
[[nodiscard]] std::vector<double> send_lags_s(const std::vector<RequestRecord>& requests);

}  // namespace moe::scripted_server
