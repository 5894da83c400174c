#pragma once

// What a scripted server says and when: the answers of an OpenAI-compatible server, token by token,
// with every oddity and fault of real servers as a field. Read from JSON
// (scenarios/scripted-servers/README.md lists the fields). All times of a reply count from the
// moment its request had arrived whole, or from when it got a slot.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/json/read.hpp"

namespace moe::scripted_server {

// Whose habits the events, headers and metrics follow.
enum class Dialect : std::uint8_t { kVllm, kSglang, kLlamaCpp, kTensorRtLlm };

// A pause ahead of a token, counted from 1; it delays all that follow.
struct Stall {
  std::int64_t before_token = 1;
  double for_s = 0.0;
};

struct Timing {
  double headers_after_s = 0.0;
  double first_token_s = 0.2;
  double token_interval_s = 0.02;
  std::vector<Stall> stalls;
};

struct Tokens {
  std::int64_t limit =
      1 << 20;                 // the reply ends here ("stop") unless max_tokens ends it ("length")
  std::int64_t per_event = 1;  // a bundle leaves when its first token is due
  std::int64_t first_event = 0;       // tokens of the first event; 0: per_event
  std::int64_t events_per_write = 1;  // held back until the last of them is due
  std::vector<std::string> texts;     // used in turn; not empty
  std::vector<std::int32_t> ids;      // likewise; empty: 1000 and up, one a text
  std::int64_t reasoning = 0;         // this many tokens first
  std::string reasoning_field;        // "reasoning" or "reasoning_content"
  std::int64_t tool = 0;              // this many tokens last, as arguments of a tool call
  std::int64_t empty_every = 0;       // every k-th token has an event with an empty text; 0: none
  std::int64_t withheld_every = 0;    // every k-th token has no event, its text joins the next
};

enum class Opening : std::uint8_t { kNone, kRole, kEmpty, kNull, kProgress };
// kSeparate: an event with an empty text, no token. kOnLastToken: in the last token's event. kEos:
// the last token is the event with an empty text. kMissing: none.
enum class Finish : std::uint8_t { kSeparate, kOnLastToken, kEos, kMissing };
// kAsAsked: what stream_options say. kFinal, kLastChoice, kEveryEvent: asked or not.
enum class UsageMode : std::uint8_t { kAsAsked, kFinal, kLastChoice, kEveryEvent, kNever };
enum class Extra : std::uint8_t { kAsAsked, kAlways, kNever };

struct Events {
  Opening opening = Opening::kNone;  // chat only, unless it is kNull or kProgress or kEmpty
  std::optional<double> opening_s;   // absent: in one write with the first token
  Finish finish = Finish::kSeparate;
  UsageMode usage = UsageMode::kAsAsked;
  double usage_after_s = 0.0;     // after the last token
  bool null_usage = false;        // "usage": null in every other event
  std::int64_t usage_offset = 0;  // a server that miscounts by this many
  Extra token_ids = Extra::kAsAsked;
  Extra timings = Extra::kNever;
  bool done = true;
  double done_after_s = 0.0;  // after the usage
};

enum class LineEnd : std::uint8_t { kLf, kCrLf, kCr };
enum class Comments : std::uint8_t { kNone, kBeforeEach, kInsideEach };
// Where one event is cut into two writes.
enum class Split : std::uint8_t {
  kNone,
  kInsideCharacter,
  kAfterColon,
  kInsideLineEnd,
  kEveryBytes
};

struct Framing {
  LineEnd line_end = LineEnd::kLf;
  bool blank_after_colon = true;
  bool event_field = false;  // "event: message" ahead of the data
  bool two_data_lines = false;
  bool byte_order_mark = false;
  Comments comments = Comments::kNone;
  std::optional<double> keepalive_s;  // a comment this often until the first token
  Split split = Split::kNone;
  std::int64_t split_bytes = 1;  // kEveryBytes
  double split_gap_s = 0.001;
};

enum class Body : std::uint8_t { kChunked, kUntilClose };
// kCloseUnannounced: closes after the reply though its headers promise to stay.
enum class AfterReply : std::uint8_t { kKeepAlive, kClose, kCloseUnannounced };

enum class FaultKind : std::uint8_t {
  kNone,
  kCut,         // the connection ends inside the body
  kCleanCut,    // the body ends properly, but without a finish reason or [DONE]
  kReset,       // the connection is reset
  kHang,        // nothing more is said
  kErrorEvent,  // an error object in the stream
  kBadJson,     // an event that is not JSON; the stream goes on
  kHttpError,   // an HTTP status instead of a reply
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  bool before_headers = false;    // kCut, kReset, kHang: not even a status line
  std::int64_t after_tokens = 0;  // happens when the next token would have been due
  double after_s = 0.0;           // later than that
  bool then_done = true;          // kErrorEvent: [DONE] follows
  int status = 500;               // kHttpError
  std::string message = "scripted failure";
};

struct Reply {
  std::int64_t times = 1;  // for so many requests in a row
  Timing timing;
  Tokens tokens;
  Events events;
  Framing framing;
  Body body = Body::kChunked;
  AfterReply after = AfterReply::kKeepAlive;
  Fault fault;
};

struct Script {
  std::string about;
  Dialect dialect = Dialect::kVllm;
  std::string model = "scripted";
  std::string version = "1.0";
  std::int64_t slots = 0;  // replies at the same time, the rest waits in line; 0: any number
  std::int64_t kv_tokens = 65536;  // what the KV cache use in the metrics is a share of
  double ready_after_s = 0.0;      // 503 before that
  bool has_metrics = true;
  std::string api_key;                                 // empty: none is asked for
  std::optional<double> dies_after_s;                  // resets every connection, then refuses
  std::optional<std::int64_t> dies_after_requests;     // the same once so many have arrived
  std::optional<std::int64_t> refuses_after_requests;  // takes no new connections after so many
  std::vector<Reply> replies;  // not empty; request after request in turn, then from the start
};

// `where` names the source in messages. Throws Error(kInput): unknown and misplaced keys, values
// out of range.
[[nodiscard]] Script parse_script(const json::Json& document, const std::string& where);
[[nodiscard]] Script read_script(const std::filesystem::path& file);

}  // namespace moe::scripted_server
