#include "lib/client/answer_reader.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lib/base/text.hpp"

namespace moe::client {
namespace {

// More choices than any server gives; further ones are not followed.
constexpr std::size_t kMaxChoices = 1024;

// Servers say in words that prompt and answer do not fit the context; there is no common code.
bool is_about_context(std::string_view type, std::string_view message) {
  for (const std::string_view sign :
       {"exceed_context_size", "context_length_exceeded", "context length", "context size",
        "context window", "maximum model length", "max_model_len", "longer than the maximum",
        "maximum sequence length"}) {
    if (type.find(sign) != std::string_view::npos || message.find(sign) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

void AnswerReader::feed(std::string_view bytes, double time_s, EventReader& events) {
  if (!is_decided_) {
    const std::size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos) {
      is_decided_ = true;
      // No line of an event stream begins like this, and every JSON body does.
      is_plain_ = bytes[first] == '{' || bytes[first] == '[' || bytes[first] == '<' ||
                  bytes[first] == '"' || status_ / 100 != 2;
    }
  }
  if (is_plain_) {
    if (body_.size() + bytes.size() > kMaxBodyBytes) {
      is_overflown_ = true;
      return;
    }
    body_.append(bytes);
    return;
  }
  sse_.feed(bytes, [&](const SseEvent& event) {
    const StreamEvent& read = events.read(event.data);
    if (event.is_error_field && read.kind != EventKind::kError) {
      StreamEvent error;
      error.kind = EventKind::kError;
      error.error_message = event.data;
      take(error, time_s);
    } else {
      take(read, time_s);
    }
  });
}

void AnswerReader::take(const StreamEvent& event, double time_s) {
  if (is_done_) return;
  if (event.usage) usage_ = event.usage;
  switch (event.kind) {
    case EventKind::kChoices:
      take_choices(event, time_s);
      break;
    case EventKind::kDone:
      is_done_ = true;
      break;
    case EventKind::kError:
      take_error(event);
      break;
    case EventKind::kMalformed:
      is_malformed_ = true;
      break;
    case EventKind::kUsageOnly:
    case EventKind::kNull:
    case EventKind::kOther:
      break;
  }
}

void AnswerReader::take_choices(const StreamEvent& event, double time_s) {
  Seen seen;
  seen.time_s = time_s;
  seen.is_prelude = true;
  for (const ChoiceDelta& choice : event.choices) {
    if (choice.has_token_ids) seen.num_ids = std::max(seen.num_ids, 0) + choice.num_token_ids;
    seen.has_output = seen.has_output || choice.has_output();
    seen.is_visible = seen.is_visible || !choice.text.empty() || choice.has_tool;
    seen.is_prelude = seen.is_prelude && !choice.has_output() &&
                      (choice.has_role || event.has_prompt_progress) &&
                      choice.finish_reason.empty();
    const auto index = static_cast<std::size_t>(choice.index);
    if (index < kMaxChoices) {
      if (finished_.size() <= index) finished_.resize(index + 1);
      if (!choice.finish_reason.empty()) finished_[index] = true;
    }
    if (!choice.finish_reason.empty()) finish_reason_ = printable(choice.finish_reason);
    if (keeps_text_) {
      reasoning_.append(choice.reasoning);
      text_.append(choice.text);
      text_.append(choice.tool_text);
      if (choice.index == 0 && choice.has_token_ids) {
        const auto first = event.token_ids.begin() + choice.first_token_id;
        ids_.insert(ids_.end(), first, first + choice.num_token_ids);
      }
    }
  }
  if (event.usage) seen.usage_total = event.usage->completion_tokens;
  seen_.push_back(seen);
  if (seen.has_output || seen.num_ids > 0) {
    ++num_outputs_;
    last_output_s_ = time_s;
  }
}

void AnswerReader::take_error(const StreamEvent& event) {
  has_error_ = true;
  if (!error_.empty()) return;
  error_type_ = printable(event.error_type);
  error_ =
      event.error_message.empty() ? "an error without a message" : printable(event.error_message);
  if (!error_type_.empty()) error_ = fmt::format("{}: {}", error_type_, error_);
}

void AnswerReader::read_plain(EventReader& events, double time_s) {
  const StreamEvent& event = events.read(body_);
  if (status_ / 100 != 2 && event.kind == EventKind::kMalformed) {
    error_ = printable(std::string_view(body_).substr(0, 200));
    return;
  }
  take(event, time_s);
}

Failure AnswerReader::judge(const BodyEnd& end) const {
  const bool is_finished =
      !finished_.empty() && std::find(finished_.begin(), finished_.end(), false) == finished_.end();
  if (status_ != 0 && status_ / 100 != 2) {
    return is_about_context(error_type_, error_) ? Failure::kTooLong : Failure::kHttpStatus;
  }
  if (has_error_) {
    return is_about_context(error_type_, error_) ? Failure::kTooLong : Failure::kErrorEvent;
  }
  if (is_overflown()) return Failure::kMalformed;
  if (is_done_ && !is_malformed_) return Failure::kNone;
  // An answer that said how it finished is whole, however the connection ended.
  if (is_finished && !is_malformed_) return Failure::kNone;
  if (end.failure != Failure::kNone) {
    return end.failure == Failure::kReset && status_ != 0 ? Failure::kTruncated : end.failure;
  }
  if (is_malformed_) return Failure::kMalformed;
  // A whole body with an answer in it, or with something else.
  if (is_plain_) return seen_.empty() ? Failure::kMalformed : Failure::kNone;
  return Failure::kTruncated;
}

void AnswerReader::finish(const BodyEnd& end, EventReader& events, const CountTokens& count_tokens,
                          RequestRecord& record) {
  if (!is_plain_) {
    sse_.finish([&](const SseEvent& event) { take(events.read(event.data), end.time_s); });
  } else if (!is_overflown_) {
    read_plain(events, end.time_s);
  }
  record.http_status = status_;
  record.failure = judge(end);
  record.finish_reason = finish_reason_;
  record.error = error_;
  if (record.error.empty() && record.failure != Failure::kNone) {
    record.error = end.error;
    if (record.failure == Failure::kMalformed) record.error = "not an answer in JSON";
    if (is_overflown()) record.error = "an event or a body beyond the size limit";
    if (record.failure == Failure::kTruncated) {
      record.error = fmt::format(
          "the answer ended after {} events without a finish reason or "
          "[DONE]{}{}",
          seen_.size(), end.error.empty() ? "" : ": ", end.error);
    }
    if (record.failure == Failure::kHttpStatus) record.error = "no body";
  }
  if (usage_) {
    record.prompt_tokens = usage_->prompt_tokens;
    record.cached_tokens = usage_->cached_tokens;
    record.reasoning_tokens = usage_->reasoning_tokens;
    record.server_output_tokens = usage_->completion_tokens;
  }
  count(count_tokens, record);
  if (!keeps_text_) return;
  record.text = text_.empty() ? reasoning_ : text_;
  if (record.id_output_tokens) record.token_ids = std::move(ids_);
}

}  // namespace moe::client
