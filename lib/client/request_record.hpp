#pragma once

// One request as the client saw it. Times are seconds on the run's clock (0 is the start of the
// run, CLOCK_MONOTONIC); absent times stay unset.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe::client {

// How a request ended. Only kNone is a success; every other class is counted apart and never
// enters the latency samples.
enum class Failure : std::uint8_t {
  kNone,
  kRefused,     // no connection: refused, unreachable, name not found
  kReset,       // the connection broke before or during the answer
  kTimeout,     // no answer in the time allowed
  kTls,         // handshake or certificate
  kHttpStatus,  // an answer with another status than 2xx
  kTooLong,     // refused since prompt and answer exceed the model's context
  kErrorEvent,  // an error object inside a stream with status 200
  kTruncated,   // the answer ended without a finish reason or [DONE]
  kMalformed,   // not the protocol: no JSON, an event too large
  kCancelled,   // given up by us: the run ended
};
inline constexpr int kNumFailures = 11;

// "refused", "http_status", ...: stable names for reports.
[[nodiscard]] const char* name_of(Failure failure);

// Where the number of generated tokens comes from, best first.
enum class TokenSource : std::uint8_t {
  kTokenIds,         // the events carry the ids
  kContinuousUsage,  // each event carries the running count
  kFinalUsage,       // one count at the end
  kTokenizer,        // the text through the tokenizer of a given checkpoint
  kNone,
};
[[nodiscard]] const char* name_of(TokenSource source);

enum class Phase : std::uint8_t { kWarmup, kMeasured };

// One arrival of generated tokens.
struct TokenArrival {
  float offset_s = 0.0F;    // since the request was sent
  float num_tokens = 0.0F;  // a fraction where only the total is known
};

struct RequestRecord {
  std::int64_t index = 0;  // in the order of the plan
  std::string request_id;  // sent as X-Request-Id, to find it in a server's log
  std::int64_t conversation = 0;
  std::int32_t turn = 0;
  Phase phase = Phase::kMeasured;

  double intended_s = 0.0;              // when the plan says it should leave
  std::optional<double> sent_s;         // when it left, after the connection stood
  std::optional<double> headers_s;      // first byte of the answer
  std::optional<double> first_token_s;  // first event with a generated token, reasoning included
  std::optional<double> first_visible_s;
  std::optional<double> last_token_s;
  std::optional<double> end_s;
  std::optional<double> connect_s;  // length of connecting and handshake; absent when reused

  Failure failure = Failure::kNone;
  std::int32_t http_status = 0;
  std::string error;           // one printable line
  std::int32_t num_sends = 0;  // above 1: a kept connection was dead and the request went again

  std::int64_t requested_prompt_tokens = 0;   // 0: not known
  std::int64_t requested_output_tokens = 0;   // 0: no limit given
  std::optional<std::int64_t> prompt_tokens;  // as the server says
  std::optional<std::int64_t> cached_tokens;
  std::optional<std::int64_t> reasoning_tokens;
  std::optional<std::int64_t> server_output_tokens;  // usage
  std::optional<std::int64_t> id_output_tokens;      // ids seen
  std::optional<std::int64_t> tokenizer_output_tokens;
  std::optional<std::int64_t> output_tokens;  // the one that counts, by `token_source`
  TokenSource token_source = TokenSource::kNone;
  bool has_exact_arrivals = false;     // every arrival's number of tokens is known, not spread
  std::int32_t num_output_events = 0;  // events with text, reasoning or a tool call
  std::vector<TokenArrival> arrivals;
  std::string finish_reason;
  // Only when the run keeps texts: the answer, and the first choice's ids where the server sends
  // those of every token.
  std::string text;
  std::vector<std::int32_t> token_ids;

  [[nodiscard]] bool is_success() const { return failure == Failure::kNone; }
};

}  // namespace moe::client
