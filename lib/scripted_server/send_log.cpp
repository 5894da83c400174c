#include "lib/scripted_server/send_log.hpp"

#include <iterator>

#include <fmt/format.h>

#include "lib/scripted_server/event_text.hpp"

namespace moe::scripted_server {

const char* reply_end_name(ReplyEnd end) {
  switch (end) {
    case ReplyEnd::kComplete:
      return "complete";
    case ReplyEnd::kFailed:
      return "failed";
    case ReplyEnd::kClientLeft:
      return "client_left";
    case ReplyEnd::kServerDied:
      return "server_died";
    case ReplyEnd::kStopped:
      return "stopped";
  }
  return "";
}

std::string log_line(const RequestRecord& record) {
  std::string line = fmt::format(
      R"({{"request":{},"request_id":"{}","endpoint":"{}","stream":{},"prompt_tokens":{},)"
      R"("asked_tokens":{},"tokens":{},"arrived_s":{:.6f},"started_s":{:.6f},"ended_s":{:.6f},)"
      R"("end":"{}","sends":[)",
      record.index, escape_json(record.request_id), record.is_chat ? "chat" : "completions",
      record.is_stream, record.prompt_tokens, record.asked_tokens, record.tokens, record.arrived_s,
      record.started_s, record.ended_s, reply_end_name(record.end));
  const char* separator = "";
  for (const SendRecord& send : record.sends) {
    fmt::format_to(std::back_inserter(line),
                   R"({}{{"due_s":{:.6f},"left_s":{:.6f},"tokens":{},"kind":"{}"}})", separator,
                   send.due_s, send.left_s, send.tokens, piece_name(send.kind));
    separator = ",";
  }
  line += "]}";
  return line;
}

std::vector<double> send_lags_s(const std::vector<RequestRecord>& requests) {
  std::vector<double> lags_s;
  for (const RequestRecord& record : requests) {
    for (const SendRecord& send : record.sends) lags_s.push_back(send.left_s - send.due_s);
  }
  return lags_s;
}

}  // namespace moe::scripted_server
