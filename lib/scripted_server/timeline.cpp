#include "lib/scripted_server/timeline.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "lib/scripted_server/event_text.hpp"
#include "lib/scripted_server/token_events.hpp"

namespace moe::scripted_server {
namespace {

// Lays the pieces of one streamed reply one behind the other.
class StreamBuilder {
 public:
  StreamBuilder(const Script& script, const Reply& reply, const GenerationRequest& request,
                bool is_chunked)
      : reply_(reply), writer_(script, reply, request), is_chunked_(is_chunked) {}

  [[nodiscard]] const EventWriter& writer() const { return writer_; }
  [[nodiscard]] Timeline& timeline() { return timeline_; }

  void add_raw(double at_s, PieceKind kind, std::string_view bytes) {
    timeline_.bytes += bytes;
    add_piece(at_s, kind);
  }

  // `json` as one event, in one HTTP chunk.
  void add_event(double at_s, PieceKind kind, std::int64_t tokens, std::string_view json) {
    framed_.clear();
    if (!has_mark_ && reply_.framing.byte_order_mark) framed_ += "\xEF\xBB\xBF";
    has_mark_ = true;
    writer_.frame(json, framed_);
    tokens_ = tokens;
    add_body(at_s, kind, framed_);
  }

  void add_comment(double at_s) {
    framed_.clear();
    writer_.frame_comment("keep-alive", framed_);
    add_body(at_s, PieceKind::kComment, framed_);
  }

 private:
  void add_body(double at_s, PieceKind kind, std::string_view body) {
    const std::size_t begin = timeline_.bytes.size();
    std::size_t body_begin = begin;
    if (is_chunked_) {
      fmt::format_to(std::back_inserter(timeline_.bytes), "{:x}\r\n", body.size());
      body_begin = timeline_.bytes.size();
    }
    timeline_.bytes += body;
    if (is_chunked_) timeline_.bytes += "\r\n";
    add_splits(at_s, begin, body_begin, body);
    add_piece(std::max(at_s, last_at_s_), kind);
  }

  // Offsets inside the event where a write ends early; each part behind it leaves a gap later.
  void add_splits(double at_s, std::size_t begin, std::size_t body_begin, std::string_view body) {
    const Framing& framing = reply_.framing;
    std::vector<std::size_t> cuts;
    if (framing.split == Split::kEveryBytes) {
      const auto step = static_cast<std::size_t>(framing.split_bytes);
      for (std::size_t at = begin + step; at < timeline_.bytes.size(); at += step) {
        cuts.push_back(at);
      }
    } else if (framing.split == Split::kInsideCharacter) {
      const auto wide = std::find_if(body.begin(), body.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) == 0xC0U;
      });
      if (wide != body.end()) {
        cuts.push_back(body_begin + static_cast<std::size_t>(wide - body.begin()) + 1);
      }
    } else if (framing.split == Split::kAfterColon) {
      const std::size_t colon = body.find("data:");
      if (colon != std::string_view::npos) cuts.push_back(body_begin + colon + 5);
    } else if (framing.split == Split::kInsideLineEnd) {
      const std::size_t end = body.find_last_not_of("\r\n");
      if (end != std::string_view::npos) cuts.push_back(body_begin + end + 2);
    }
    const std::int32_t tokens_before =
        timeline_.pieces.empty() ? 0 : timeline_.pieces.back().tokens;
    double part_at_s = at_s;
    for (const std::size_t cut : cuts) {
      push(part_at_s, cut, tokens_before, PieceKind::kPart);
      part_at_s = last_at_s_ + framing.split_gap_s;
    }
    if (!cuts.empty()) last_at_s_ = part_at_s;
  }

  void add_piece(double at_s, PieceKind kind) {
    push(at_s, timeline_.bytes.size(), static_cast<std::int32_t>(tokens_), kind);
  }

  void push(double at_s, std::size_t end, std::int32_t tokens, PieceKind kind) {
    last_at_s_ = std::max(at_s, last_at_s_);
    timeline_.pieces.push_back({last_at_s_, static_cast<std::uint32_t>(end), tokens, kind});
  }

  const Reply& reply_;
  EventWriter writer_;
  bool is_chunked_;
  bool has_mark_ = false;
  std::int64_t tokens_ = 0;
  double last_at_s_ = 0.0;
  std::string framed_;
  Timeline timeline_;
};

std::string stream_headers(bool is_chunked, bool says_close) {
  std::string head =
      "HTTP/1.1 200 OK\r\nServer: scripted\r\n"
      "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
  if (is_chunked) head += "Transfer-Encoding: chunked\r\n";
  head += says_close ? "Connection: close\r\n\r\n" : "\r\n";
  return head;
}

Ending ending_of(const Reply& reply, bool client_keeps_alive, bool is_until_close) {
  const bool stays = reply.after == AfterReply::kKeepAlive && client_keeps_alive && !is_until_close;
  return stays ? Ending::kKeepAlive : Ending::kClose;
}

// Sets how a reply that failed in mid-stream ends. Returns whether the body still ends properly.
bool end_by_fault(const Fault& fault, Timeline& timeline) {
  timeline.finish_reason = "error";
  switch (fault.kind) {
    case FaultKind::kCut:
      timeline.ending = Ending::kClose;
      return false;
    case FaultKind::kReset:
      timeline.ending = Ending::kReset;
      return false;
    case FaultKind::kHang:
      timeline.ending = Ending::kHang;
      return false;
    case FaultKind::kNone:
    case FaultKind::kCleanCut:
    case FaultKind::kErrorEvent:
    case FaultKind::kBadJson:
    case FaultKind::kHttpError:
      return true;
  }
  return true;
}

void add_opening(const Reply& reply, const GenerationRequest& request, double first_event_s,
                 StreamBuilder& stream) {
  const Opening opening = reply.events.opening;
  const bool is_wanted =
      opening != Opening::kNone && (opening != Opening::kRole || request.is_chat);
  const double opening_s =
      is_wanted ? reply.events.opening_s.value_or(first_event_s) : first_event_s;
  double alive_s = reply.timing.headers_after_s;
  const auto keep_alive_until = [&](double end_s) {
    if (!reply.framing.keepalive_s) return;
    for (alive_s += *reply.framing.keepalive_s; alive_s < end_s;
         alive_s += *reply.framing.keepalive_s) {
      stream.add_comment(alive_s);
    }
    alive_s -= *reply.framing.keepalive_s;
  };
  keep_alive_until(opening_s);
  if (is_wanted) {
    std::string json;
    stream.writer().write_opening(json);
    stream.add_event(opening_s, PieceKind::kOpening, 0, json);
  }
  keep_alive_until(first_event_s);
}

// The events behind the last token.
double add_closing(const Reply& reply, const GenerationRequest& request, const TokenPlan& plan,
                   double at_s, StreamBuilder& stream) {
  const EventWriter& writer = stream.writer();
  std::string json;
  if (plan.finish_event) {
    EventParts parts = *plan.finish_event;
    writer.write_tokens(parts, json);
    stream.add_event(at_s, PieceKind::kFinish, plan.tokens, json);
  }
  const bool has_usage = reply.events.usage == UsageMode::kFinal ||
                         (reply.events.usage == UsageMode::kAsAsked && request.include_usage);
  if (has_usage) {
    at_s += reply.events.usage_after_s;
    json.clear();
    writer.write_usage(plan.tokens, plan.elapsed_s, reply.events.timings != Extra::kNever, json);
    stream.add_event(at_s, PieceKind::kUsage, plan.tokens, json);
  }
  if (reply.events.done) {
    at_s += reply.events.done_after_s;
    stream.add_event(at_s, PieceKind::kDone, plan.tokens, "[DONE]");
  }
  return at_s;
}

Timeline make_stream(const Script& script, const Reply& reply, const GenerationRequest& request,
                     bool client_keeps_alive, bool is_http_10) {
  const bool is_until_close = reply.body == Body::kUntilClose || is_http_10;
  StreamBuilder stream(script, reply, request, !is_until_close);
  Timeline& timeline = stream.timeline();
  const TokenPlan plan = plan_tokens(reply, request);
  timeline.ending = ending_of(reply, client_keeps_alive, is_until_close);
  timeline.finish_reason = plan.finish_reason;
  timeline.tokens = plan.tokens;
  const bool says_close =
      timeline.ending == Ending::kClose && reply.after != AfterReply::kCloseUnannounced;
  const bool has_fault =
      reply.fault.kind != FaultKind::kNone && reply.fault.kind != FaultKind::kBadJson;
  const double fault_at_s =
      token_due_s(reply, std::min(reply.fault.after_tokens, plan.tokens)) + reply.fault.after_s;
  stream.add_raw(reply.timing.headers_after_s, PieceKind::kHeaders,
                 stream_headers(!is_until_close, says_close));
  add_opening(reply, request, plan.events.empty() ? plan.last_s : plan.events.front().at_s, stream);
  std::string json;
  bool has_bad_event = reply.fault.kind == FaultKind::kBadJson;
  for (const TokenEvent& event : plan.events) {
    json.clear();
    stream.writer().write_tokens(event.parts, json);
    stream.add_event(event.at_s, PieceKind::kTokens, event.parts.end_token, json);
    if (has_bad_event && event.parts.end_token >= reply.fault.after_tokens) {
      stream.add_event(event.at_s, PieceKind::kError, event.parts.end_token, R"({"choices":[)");
      has_bad_event = false;
    }
  }
  bool ends_body = true;
  double at_s = plan.last_s;
  if (has_fault) {
    at_s = fault_at_s;
    ends_body = end_by_fault(reply.fault, timeline);
    if (reply.fault.kind == FaultKind::kErrorEvent) {
      json.clear();
      stream.writer().write_error(json);
      stream.add_event(at_s, PieceKind::kError, plan.tokens, json);
      if (reply.fault.then_done) stream.add_event(at_s, PieceKind::kDone, plan.tokens, "[DONE]");
    }
  } else {
    at_s = add_closing(reply, request, plan, at_s, stream);
    timeline.is_complete = true;
  }
  if (ends_body && !is_until_close) stream.add_raw(at_s, PieceKind::kEnd, "0\r\n\r\n");
  timeline.ends_at_s = std::max(at_s, timeline.pieces.back().at_s);
  return std::move(timeline);
}

// Not streamed: everything leaves when the last token is due.
Timeline make_whole(const Script& script, const Reply& reply, const GenerationRequest& request,
                    bool client_keeps_alive) {
  const TokenPlan plan = plan_tokens(reply, request);
  const EventWriter writer(script, reply, request);
  std::string reasoning;
  std::string content;
  std::string tool;
  for (const TokenEvent& event : plan.events) {
    std::string& part = event.parts.kind == TextKind::kReasoning ? reasoning
                        : event.parts.kind == TextKind::kTool    ? tool
                                                                 : content;
    part += event.parts.text;
  }
  EventParts parts;
  parts.end_token = plan.tokens;
  parts.finish_reason = plan.finish_reason;
  parts.has_usage = reply.events.usage != UsageMode::kNever;
  parts.has_timings = reply.events.timings != Extra::kNever;
  parts.elapsed_s = plan.elapsed_s;
  parts.has_token_ids = plan.has_token_ids;
  const bool is_error = reply.fault.kind == FaultKind::kErrorEvent;
  std::string body;
  if (is_error) {
    writer.write_error(body);
  } else {
    writer.write_whole(reasoning, content, tool, parts, body);
  }
  const bool keeps = reply.after == AfterReply::kKeepAlive && client_keeps_alive;
  Timeline timeline = make_plain(is_error ? reply.fault.status : 200, "application/json", body,
                                 keeps || reply.after == AfterReply::kCloseUnannounced, false);
  timeline.ending = ending_of(reply, client_keeps_alive, false);
  timeline.finish_reason = plan.finish_reason;
  timeline.tokens = plan.tokens;
  timeline.pieces.front().at_s = timeline.ends_at_s = plan.last_s;
  timeline.pieces.front().tokens = static_cast<std::int32_t>(plan.tokens);
  timeline.is_complete = !is_error;
  const bool is_broken =
      reply.fault.kind != FaultKind::kNone && !is_error && reply.fault.kind != FaultKind::kBadJson;
  if (is_broken) {
    timeline.is_complete = false;
    if (end_by_fault(reply.fault, timeline)) timeline.ending = Ending::kClose;
    timeline.bytes.resize(timeline.bytes.size() - body.size() / 2);
    timeline.pieces.front().end = static_cast<std::uint32_t>(timeline.bytes.size());
  }
  return timeline;
}

}  // namespace

const char* piece_name(PieceKind kind) {
  switch (kind) {
    case PieceKind::kHeaders:
      return "headers";
    case PieceKind::kComment:
      return "comment";
    case PieceKind::kOpening:
      return "opening";
    case PieceKind::kTokens:
      return "tokens";
    case PieceKind::kFinish:
      return "finish";
    case PieceKind::kUsage:
      return "usage";
    case PieceKind::kError:
      return "error";
    case PieceKind::kDone:
      return "done";
    case PieceKind::kEnd:
      return "end";
    case PieceKind::kPart:
      return "part";
  }
  return "";
}

std::string_view status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Scripted";
  }
}

Timeline make_plain(int status, std::string_view content_type, std::string_view body,
                    bool keeps_alive, bool is_head) {
  Timeline timeline;
  timeline.bytes = fmt::format(
      "HTTP/1.1 {} {}\r\nServer: scripted\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n",
      status, status_text(status), content_type, body.size(),
      keeps_alive ? "" : "Connection: close\r\n");
  if (!is_head) timeline.bytes += body;
  timeline.pieces.push_back(
      {0.0, static_cast<std::uint32_t>(timeline.bytes.size()), 0, PieceKind::kEnd});
  timeline.ending = keeps_alive ? Ending::kKeepAlive : Ending::kClose;
  timeline.is_complete = status == 200;
  return timeline;
}

Timeline make_timeline(const Script& script, const Reply& reply, const GenerationRequest& request,
                       bool client_keeps_alive, bool is_http_10) {
  const Fault& fault = reply.fault;
  if (fault.kind == FaultKind::kHttpError) {
    std::string body;
    EventWriter(script, reply, request).write_error(body);
    Timeline timeline =
        make_plain(fault.status, "application/json", body,
                   client_keeps_alive && reply.after == AfterReply::kKeepAlive, false);
    timeline.pieces.front().at_s = timeline.ends_at_s = reply.timing.headers_after_s;
    timeline.finish_reason = "error";
    return timeline;
  }
  const bool is_silent =
      fault.before_headers && (fault.kind == FaultKind::kCut || fault.kind == FaultKind::kReset ||
                               fault.kind == FaultKind::kHang);
  if (is_silent) {
    Timeline timeline;
    (void)end_by_fault(fault, timeline);
    timeline.ends_at_s = reply.timing.headers_after_s + fault.after_s;
    return timeline;
  }
  return request.stream ? make_stream(script, reply, request, client_keeps_alive, is_http_10)
                        : make_whole(script, reply, request, client_keeps_alive && !is_http_10);
}

}  // namespace moe::scripted_server
