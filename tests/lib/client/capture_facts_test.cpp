// What the readers make of the recorded answers of real servers, against facts that another
// implementation derived.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/client/answer_reader.hpp"
#include "lib/client/event_reader.hpp"
#include "lib/client/sse_reader.hpp"
#include "tests/lib/client/captures.hpp"

namespace moe::client {
namespace {

using Json = nlohmann::ordered_json;

struct ChoiceFacts {
  std::string text;
  std::string reasoning;
  std::string finish_reason;
  std::int64_t with_output = 0;
  std::int64_t empty = 0;
  std::int64_t logprobs = 0;
  std::int64_t tools = 0;
  std::vector<std::int32_t> ids;
};

struct Facts {
  std::int64_t num_events = 0;
  std::vector<std::string> sequence;  // runs: "text x8"
  std::map<std::int32_t, ChoiceFacts> choices;
  std::optional<Usage> usage;
  std::int64_t usage_events = 0;
  bool has_choiceless_usage = false;
  std::string error_message;
  bool ends_with_done = false;
};

std::string kind_of(const ChoiceDelta& choice) {
  std::string kind = "empty";
  if (choice.has_tool) {
    kind = "tool";
  } else if (!choice.reasoning.empty()) {
    kind = "reasoning";
  } else if (!choice.text.empty()) {
    kind = "text";
  } else if (choice.has_role) {
    kind = "role";
  }
  return choice.finish_reason.empty() ? kind : kind + "+finish";
}

std::string kind_of(const StreamEvent& event) {
  switch (event.kind) {
    case EventKind::kUsageOnly:
      return "usage_only";
    case EventKind::kError:
      return "error";
    case EventKind::kDone:
      return "done";
    case EventKind::kNull:
      return "json:None";
    case EventKind::kOther:
      return "other";
    case EventKind::kMalformed:
      return "malformed";
    case EventKind::kChoices:
      break;
  }
  std::string kinds;
  for (const ChoiceDelta& choice : event.choices) {
    kinds += (kinds.empty() ? "" : "/") + kind_of(choice);
  }
  return kinds;
}

std::vector<std::string> runs_of(const std::vector<std::string>& kinds) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < kinds.size();) {
    std::size_t end = i;
    while (end < kinds.size() && kinds[end] == kinds[i]) ++end;
    runs.push_back(end - i == 1 ? kinds[i] : kinds[i] + " x" + std::to_string(end - i));
    i = end;
  }
  return runs;
}

void take(const StreamEvent& event, Facts& facts, std::vector<std::string>& kinds) {
  ++facts.num_events;
  kinds.push_back(kind_of(event));
  facts.ends_with_done = event.kind == EventKind::kDone;
  if (event.kind == EventKind::kError) facts.error_message = std::string(event.error_message);
  if (event.usage) {
    facts.usage = event.usage;
    ++facts.usage_events;
    if (event.kind == EventKind::kUsageOnly) facts.has_choiceless_usage = true;
  }
  for (const ChoiceDelta& choice : event.choices) {
    ChoiceFacts& into = facts.choices[choice.index];
    into.text += choice.text;
    into.reasoning += choice.reasoning;
    if (!choice.finish_reason.empty()) into.finish_reason = std::string(choice.finish_reason);
    ++(choice.has_output() ? into.with_output : into.empty);
    into.logprobs += choice.num_logprobs;
    into.tools += choice.has_tool ? 1 : 0;
    for (std::int32_t i = 0; i < choice.num_token_ids; ++i) {
      into.ids.push_back(event.token_ids[static_cast<std::size_t>(choice.first_token_id + i)]);
    }
  }
}

Facts facts_of(const std::string& body) {
  Facts facts;
  std::vector<std::string> kinds;
  EventReader events;
  SseReader reader;
  const auto sink = [&](const SseEvent& event) { take(events.read(event.data), facts, kinds); };
  reader.feed(body, sink);
  reader.finish(sink);
  facts.sequence = runs_of(kinds);
  return facts;
}

// "text x8" as eight kinds. Our "other" stands for the facts' "other:KEYS".
void expand(const std::string& run, std::vector<std::string>& kinds) {
  const std::size_t count_at = run.rfind(" x");
  const std::string kind = run.rfind("other:", 0) == 0 ? "other" : run.substr(0, count_at);
  const int count = count_at == std::string::npos ? 1 : std::stoi(run.substr(count_at + 2));
  kinds.insert(kinds.end(), static_cast<std::size_t>(count), kind);
}

void expect_choice(const Json& expected, const ChoiceFacts& seen) {
  EXPECT_EQ(seen.text, expected.value("text", ""));
  EXPECT_EQ(seen.reasoning, expected.value("reasoning", ""));
  EXPECT_EQ(seen.finish_reason, expected.value("finish_reason", ""));
  EXPECT_EQ(seen.with_output, expected.value("events_with_text", 0));
  EXPECT_EQ(seen.empty, expected.value("events_empty", 0));
  if (expected.contains("logprob_tokens")) {
    EXPECT_EQ(seen.logprobs, expected["logprob_tokens"].get<std::int64_t>());
  }
  if (expected.contains("tool_calls")) {
    EXPECT_EQ(seen.tools, expected["tool_calls"].get<std::int64_t>());
  }
  if (expected.contains("token_ids")) {
    EXPECT_EQ(seen.ids, expected["token_ids"].get<std::vector<std::int32_t>>());
  } else if (expected.contains("token_ids_count")) {
    EXPECT_EQ(static_cast<std::int64_t>(seen.ids.size()),
              expected["token_ids_count"].get<std::int64_t>());
  }
}

void expect_usage(const Json& expected, const std::optional<Usage>& seen) {
  ASSERT_EQ(seen.has_value(), !expected.is_null());
  if (!seen) return;
  EXPECT_EQ(seen->prompt_tokens, expected["prompt_tokens"].get<std::int64_t>());
  EXPECT_EQ(seen->completion_tokens, expected["completion_tokens"].get<std::int64_t>());
}

bool is_stream(const Json& facts) {
  return facts.contains("event_sequence") && !facts["event_sequence"].is_null();
}

TEST(CaptureFacts, StreamsSayWhatTheyHold) {
  for (const Capture& capture : all_captures()) {
    if (!is_stream(capture.facts)) continue;
    SCOPED_TRACE(capture.name);
    const HttpAnswer answer = capture.last_answer();
    const Facts facts = facts_of(answer.body);
    const Json& expected = capture.facts;
    EXPECT_EQ(answer.status, expected["status"].get<int>());
    EXPECT_EQ(answer.is_whole, expected["http_message_complete"].get<bool>());
    EXPECT_EQ(facts.num_events, expected["sse_events"].get<std::int64_t>());
    EXPECT_EQ(facts.ends_with_done, expected["ends_with_done"].get<bool>());
    std::vector<std::string> kinds;
    for (const Json& run : expected["event_sequence"]) expand(run.get<std::string>(), kinds);
    EXPECT_EQ(facts.sequence, runs_of(kinds));
    EXPECT_EQ(facts.choices.size(), expected["choices"].size());
    for (const auto& [index, choice] : expected["choices"].items()) {
      SCOPED_TRACE("choice " + index);
      const auto found = facts.choices.find(std::stoi(index));
      ASSERT_NE(found, facts.choices.end());
      expect_choice(choice, found->second);
    }
    expect_usage(expected["usage"], facts.usage);
    EXPECT_EQ(facts.usage_events, expected["usage_events"].get<std::int64_t>());
    EXPECT_EQ(facts.has_choiceless_usage, expected["usage_in_choiceless_chunk"].get<bool>());
    if (expected.contains("error_event")) {
      EXPECT_EQ(facts.error_message, expected["error_event"]["message"].get<std::string>());
    }
  }
}

TEST(CaptureFacts, PlainAnswersSayWhatTheyHold) {
  int num_plain = 0;
  for (const Capture& capture : all_captures()) {
    const Json& expected = capture.facts;
    if (is_stream(expected) || !expected.contains("choices") || !expected["choices"].is_array()) {
      continue;
    }
    SCOPED_TRACE(capture.name);
    ++num_plain;
    EventReader events;
    const std::string body = capture.last_answer().body;
    const StreamEvent& event = events.read(body);
    ASSERT_EQ(event.kind, EventKind::kChoices);
    ASSERT_EQ(event.choices.size(), expected["choices"].size());
    for (std::size_t i = 0; i < event.choices.size(); ++i) {
      const Json& choice = expected["choices"][i];
      EXPECT_EQ(event.choices[i].text, choice["text"].is_null() ? "" : choice["text"]);
      EXPECT_EQ(event.choices[i].finish_reason, choice["finish_reason"].get<std::string>());
      if (choice.contains("reasoning") && !choice["reasoning"].is_null()) {
        EXPECT_EQ(event.choices[i].reasoning, choice["reasoning"].get<std::string>());
      }
    }
    expect_usage(expected["usage"], event.usage);
  }
  EXPECT_GE(num_plain, 10);
}

// The whole of one answer, in reads of one size.
RequestRecord read_answer(const Capture& capture, std::size_t read_size) {
  const HttpAnswer answer = capture.last_answer();
  EventReader events;
  AnswerReader reader(true);
  reader.set_status(answer.status);
  RequestRecord record;
  record.sent_s = 0.0;
  for (std::size_t at = 0; at < answer.body.size(); at += read_size) {
    reader.feed(std::string_view(answer.body).substr(at, read_size), 1.0, events);
  }
  const Failure transport = answer.is_whole ? Failure::kNone : Failure::kReset;
  reader.finish({transport, answer.is_whole ? "" : "cut", 2.0}, events, nullptr, record);
  return record;
}

bool is_generation(const Capture& capture) {
  return capture.path == "/v1/completions" || capture.path == "/v1/chat/completions";
}

// How an answer must be judged, from the facts alone.
Failure expected_failure(const Capture& capture) {
  const Json& facts = capture.facts;
  if (facts["status"].get<int>() != 200) {
    return capture.name.find("err_too_long") != std::string::npos ||
                   capture.name == "vllm/err_max_tokens_over"
               ? Failure::kTooLong
               : Failure::kHttpStatus;
  }
  if (facts.contains("error_event")) return Failure::kErrorEvent;
  if (!is_stream(facts)) return Failure::kNone;
  if (facts["ends_with_done"].get<bool>()) return Failure::kNone;
  for (const auto& [index, choice] : facts["choices"].items()) {
    if (choice.contains("finish_reason")) return Failure::kNone;
  }
  return Failure::kTruncated;
}

TEST(CaptureFacts, AnswersAreJudgedAndCounted) {
  int num_failed = 0;
  for (const Capture& capture : all_captures()) {
    if (!is_generation(capture) || capture.facts["status"].is_null()) continue;
    const RequestRecord whole = read_answer(capture, 1U << 20U);
    for (const std::size_t read_size : {std::size_t{1} << 20U, std::size_t{1}, std::size_t{7}}) {
      SCOPED_TRACE(capture.name + " in reads of " + std::to_string(read_size));
      const RequestRecord record = read_answer(capture, read_size);
      EXPECT_STREQ(name_of(record.failure), name_of(expected_failure(capture))) << record.error;
      EXPECT_EQ(record.output_tokens, whole.output_tokens);
      EXPECT_EQ(record.text, whole.text);
      EXPECT_EQ(record.arrivals.size(), whole.arrivals.size());
    }
    num_failed += whole.is_success() ? 0 : 1;
    const Json& usage = capture.facts.contains("usage") ? capture.facts["usage"] : Json(nullptr);
    if (!usage.is_null() && whole.is_success()) {
      SCOPED_TRACE(capture.name);
      EXPECT_EQ(whole.server_output_tokens, usage["completion_tokens"].get<std::int64_t>());
    }
  }
  EXPECT_GE(num_failed, 20);
}

const Capture& capture_named(const std::string& name) {
  const std::vector<Capture>& all = all_captures();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Capture& capture) { return capture.name == name; });
  if (found == all.end()) throw std::runtime_error("no capture " + name);
  return *found;
}

TEST(CaptureFacts, TokensComeFromTheBestSource) {
  struct Case {
    const char* name;
    TokenSource source;
    std::int64_t tokens;
    std::size_t arrivals;
    bool is_exact;
  };
  for (const Case& one : std::vector<Case>{
           // The end-of-sequence token is an event without text.
           {"vllm/comp_stream_token_ids", TokenSource::kTokenIds, 9, 9, true},
           {"vllm/comp_stream_usage_cont", TokenSource::kContinuousUsage, 9, 9, true},
           {"vllm/chat_stream_usage_cont", TokenSource::kContinuousUsage, 9, 9, true},
           // 1, 4 and 4 tokens.
           {"vllm-stream-interval4/comp_stream_usage_cont", TokenSource::kContinuousUsage, 9, 3,
            true},
           {"vllm/comp_stream_usage", TokenSource::kFinalUsage, 9, 9, true},
           // 9 events with text and 11 without: completions sends an event for each token.
           {"vllm/comp_stream_utf8", TokenSource::kFinalUsage, 20, 17, true},
           {"vllm/chat_stream_utf8", TokenSource::kFinalUsage, 20, 9, false},
           {"vllm/comp_stream", TokenSource::kNone, 0, 8, false},
           // Usage rides on the last choice.
           {"llama-server/comp_stream_max1", TokenSource::kFinalUsage, 1, 1, true}}) {
    SCOPED_TRACE(one.name);
    const RequestRecord record = read_answer(capture_named(one.name), 100);
    EXPECT_STREQ(name_of(record.token_source), name_of(one.source));
    EXPECT_EQ(record.output_tokens.value_or(0), one.tokens);
    EXPECT_EQ(record.arrivals.size(), one.arrivals);
    EXPECT_EQ(record.has_exact_arrivals, one.is_exact);
    double sum = 0.0;
    for (const TokenArrival& arrival : record.arrivals)
      sum += static_cast<double>(arrival.num_tokens);
    if (one.tokens > 0) {
      EXPECT_NEAR(sum, static_cast<double>(one.tokens), 1e-4);
    }
  }
}

}  // namespace
}  // namespace moe::client
