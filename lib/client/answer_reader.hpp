#pragma once

// One answer from its bytes and their arrival times: streamed or plain, whatever the server sends.
// At the end it says what was generated when, and how the answer failed if it did.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/client/event_reader.hpp"
#include "lib/client/request_record.hpp"
#include "lib/client/sse_reader.hpp"

namespace moe::client {

// How the transport ended.
struct BodyEnd {
  Failure failure = Failure::kNone;  // of the transport; kReset for a body that was cut
  std::string error;
  double time_s = 0.0;
};

// Tokens of a text, from a tokenizer of the caller's; empty when there is none.
using CountTokens = std::function<std::int64_t(std::string_view)>;

class AnswerReader {
 public:
  // A plain answer may not be larger.
  static constexpr std::size_t kMaxBodyBytes = std::size_t{64} << 20;

  // `keeps_text`: the generated text and token ids are collected.
  explicit AnswerReader(bool keeps_text) : keeps_text_(keeps_text) {}

  void set_status(int status) { status_ = status; }
  // `time_s` is when the bytes arrived, on the run's clock.
  void feed(std::string_view bytes, double time_s, EventReader& events);

  // [DONE] was seen: nothing of interest follows, whether or not the server ends the body.
  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] bool is_overflown() const { return is_overflown_ || sse_.is_overflown(); }
  // Events with text or tokens so far, and when the last of them arrived.
  [[nodiscard]] std::int64_t num_outputs() const { return num_outputs_; }
  [[nodiscard]] double last_output_s() const { return last_output_s_; }

  // Fills the record's times of tokens, counts, failure and text. `sent_s` must be set when
  // anything was received. Call once.
  void finish(const BodyEnd& end, EventReader& events, const CountTokens& count_tokens,
              RequestRecord& record);

 private:
  // What an event with choices said about tokens.
  struct Seen {
    double time_s = 0.0;
    std::int32_t num_ids = -1;      // -1: no ids
    std::int64_t usage_total = -1;  // running count; -1: none
    bool has_output = false;
    bool is_visible = false;
    bool is_prelude = false;  // a role or prompt progress: never a token
  };

  void take(const StreamEvent& event, double time_s);
  void take_choices(const StreamEvent& event, double time_s);
  void take_error(const StreamEvent& event);
  void read_plain(EventReader& events, double time_s);
  [[nodiscard]] Failure judge(const BodyEnd& end) const;

  void count(const CountTokens& count_tokens, RequestRecord& record) const;
  [[nodiscard]] bool count_ids(std::vector<double>& weights) const;
  [[nodiscard]] bool count_running(std::vector<double>& weights) const;
  // Spreads `total` over the events; true when each event's share is certain.
  [[nodiscard]] bool spread(std::int64_t total, std::vector<double>& weights) const;
  void fill_times(const std::vector<double>& weights, RequestRecord& record) const;

  bool keeps_text_;
  int status_ = 0;
  bool is_plain_ = false;
  bool is_decided_ = false;  // plain or events
  bool is_overflown_ = false;
  bool is_done_ = false;
  bool has_error_ = false;
  bool is_malformed_ = false;
  SseReader sse_;
  std::string body_;  // of a plain answer
  std::vector<Seen> seen_;
  std::int64_t num_outputs_ = 0;
  double last_output_s_ = 0.0;
  std::vector<bool> finished_;  // by choice
  std::string finish_reason_;
  std::string error_;
  std::string error_type_;
  std::string reasoning_;
  std::string text_;
  std::vector<std::int32_t> ids_;  // of the first choice
  std::optional<Usage> usage_;
};

}  // namespace moe::client
