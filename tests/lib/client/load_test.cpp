#include "lib/client/load.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/client/load_figures.hpp"
#include "lib/stats/distribution.hpp"
#include "tests/lib/client/load_support.hpp"

namespace moe::client {
namespace {

using scripted_server::ReplyEnd;
using scripted_server::Script;

LoadPlan closed(std::int64_t concurrency, std::int64_t count) {
  LoadPlan plan;
  plan.concurrency = concurrency;
  plan.num_conversations = count;
  plan.transport.timeout_s = 2.0;
  return plan;
}

std::int64_t num_complete(const scripted_server::ServerLog& log) {
  return std::count_if(log.requests.begin(), log.requests.end(),
                       [](const scripted_server::RequestRecord& request) {
                         return request.end == ReplyEnd::kComplete;
                       });
}

std::int64_t num_succeeded(const LoadResult& result) {
  return std::count_if(result.records.begin(), result.records.end(),
                       [](const RequestRecord& record) { return record.is_success(); });
}

std::vector<std::filesystem::path> all_scripts() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/scripted-servers")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Both sides agree about every reply: what the server calls complete is a success here and nothing
// else is, and the tokens of successes are those that left.
void expect_agreement(const std::filesystem::path& file, Api api) {
  SCOPED_TRACE(file.filename().string() + " " + name_of(api));
  Script script = scripted_server::read_script(file);
  make_fast(script);
  if (script.dies_after_s || script.dies_after_requests || script.refuses_after_requests) return;
  DriveOptions options;
  options.api = api;
  LoadPlan plan = closed(4, 16);
  plan.stops_when_server_is_gone = false;
  plan.transport.timeout_s = 0.3;
  const Driven driven = drive(script, plan, options);
  ASSERT_EQ(driven.result.records.size(), 16U);
  EXPECT_EQ(num_succeeded(driven.result), num_complete(driven.log));
  std::int64_t sent = 0;
  for (const scripted_server::RequestRecord& request : driven.log.requests) {
    if (request.end == ReplyEnd::kComplete) sent += request.tokens;
  }
  std::int64_t counted = 0;
  bool is_counted = true;
  for (const RequestRecord& record : driven.result.records) {
    if (!record.is_success()) {
      EXPECT_FALSE(record.error.empty());
      continue;
    }
    is_counted = is_counted && record.token_source != TokenSource::kNone;
    counted += record.output_tokens.value_or(0);
    EXPECT_TRUE(record.first_token_s.has_value());
    EXPECT_GE(*record.first_token_s - *record.sent_s, 0.0039);
  }
  if (is_counted) {
    EXPECT_EQ(counted, sent);
  }
  EXPECT_TRUE(figures_of(driven.result, {}).violations.empty());
}

TEST(Load, EveryScriptIsCountedAsTheServerCountsIt) {
  ASSERT_GT(all_scripts().size(), 30U);
  for (const std::filesystem::path& file : all_scripts()) {
    expect_agreement(file, Api::kCompletions);
    expect_agreement(file, Api::kChat);
  }
}

constexpr const char* kSteady =
    R"({"replies": [{"timing": {"first_token_s": 0.01, "token_interval_s": 0.002}}]})";

TEST(Load, ClosedLoopKeepsItsClientsBusyAndEndsByCount) {
  const Driven driven = drive(script_of(kSteady), closed(5, 40));
  EXPECT_EQ(driven.result.end, LoadEnd::kCount);
  EXPECT_EQ(num_succeeded(driven.result), 40);
  EXPECT_EQ(driven.result.peak_in_flight, 5);
  std::set<std::int64_t> conversations;
  for (const RequestRecord& record : driven.result.records) {
    conversations.insert(record.conversation);
    EXPECT_EQ(record.num_sends, 1);
    EXPECT_EQ(record.output_tokens, 8);
    EXPECT_GE(*record.sent_s, record.intended_s - 1e-4);
    EXPECT_GE(*record.first_token_s, *record.sent_s);
    EXPECT_GE(*record.last_token_s, *record.first_token_s);
  }
  EXPECT_EQ(conversations.size(), 40U);
  // Connections stay: no more than clients.
  EXPECT_LE(driven.log.connections, 5);
}

TEST(Load, OpenLoopSendsOnItsScheduleWhateverTheAnswers) {
  LoadPlan plan;
  for (int i = 0; i < 30; ++i) plan.arrivals_s.push_back(0.005 * i);
  const Driven driven = drive(
      script_of(R"({"replies": [{"timing": {"first_token_s": 0.3, "token_interval_s": 0.001}}]})"),
      plan);
  ASSERT_EQ(driven.result.records.size(), 30U);
  for (std::size_t i = 0; i < 30; ++i) {
    const RequestRecord& record = driven.result.records[i];
    EXPECT_DOUBLE_EQ(record.intended_s, 0.005 * static_cast<double>(i));
    EXPECT_GE(*record.sent_s, record.intended_s);
  }
  EXPECT_EQ(driven.result.num_dropped, 0);
  // All were under way before the first answer came.
  EXPECT_EQ(driven.result.peak_in_flight, 30);
}

TEST(Load, SeveralLoopsShareTheLoad) {
  LoadPlan plan = closed(6, 60);
  plan.num_loops = 3;
  const Driven driven = drive(script_of(kSteady), plan);
  EXPECT_EQ(num_succeeded(driven.result), 60);
  EXPECT_EQ(driven.result.self.num_loops, 3);
  LoadPlan open;
  for (int i = 0; i < 40; ++i) open.arrivals_s.push_back(0.002 * i);
  open.num_loops = 2;
  EXPECT_EQ(num_succeeded(drive(script_of(kSteady), open).result), 40);
}

TEST(Load, EndsByTimeAndWaitsForWhatRuns) {
  LoadPlan plan = closed(3, 0);
  plan.max_duration_s = 0.2;
  const Driven driven = drive(script_of(kSteady), plan);
  EXPECT_EQ(driven.result.end, LoadEnd::kTime);
  EXPECT_GT(driven.result.records.size(), 3U);
  for (const RequestRecord& record : driven.result.records) EXPECT_TRUE(record.is_success());
}

TEST(Load, GivesUpWhatOutlastsTheDrain) {
  LoadPlan plan = closed(2, 0);
  plan.max_duration_s = 0.05;
  plan.drain_limit_s = 0.05;
  const Driven driven = drive(
      script_of(R"({"replies": [{"timing": {"first_token_s": 5, "token_interval_s": 1}}]})"), plan);
  ASSERT_EQ(driven.result.records.size(), 2U);
  for (const RequestRecord& record : driven.result.records) {
    EXPECT_EQ(record.failure, Failure::kCancelled);
  }
}

TEST(Load, ADyingServerEndsTheRunWithWhatWasThere) {
  Script script = script_of(kSteady);
  script.dies_after_requests = 20;
  const Driven driven = drive(script, closed(4, 10'000));
  EXPECT_EQ(driven.result.end, LoadEnd::kServerGone);
  EXPECT_GT(num_succeeded(driven.result), 0);
  EXPECT_LT(driven.result.records.size(), 1000U);
}

TEST(Load, AHangingServerTimesOut) {
  LoadPlan plan = closed(2, 4);
  plan.transport.timeout_s = 0.2;
  const Driven driven =
      drive(script_of(R"({"replies": [{"fault": {"kind": "hang", "after_tokens": 2}}]})"), plan);
  for (const RequestRecord& record : driven.result.records) {
    EXPECT_STREQ(name_of(record.failure), "timeout");
  }
}

TEST(Load, NothingListensThere) {
  NullProgress progress;
  RandomIdsOptions ids;
  ids.end_id = 10;
  const RandomIdsSource source(ids, BodyOptions{});
  LoadTools tools;
  tools.source = &source;
  tools.progress = &progress;
  std::uint16_t port = 0;
  { port = scripted_server::ServerThread(script_of(kSteady)).port(); }
  const LoadResult result =
      run_load(parse_endpoint("127.0.0.1:" + std::to_string(port)), closed(2, 1000), tools);
  EXPECT_EQ(result.end, LoadEnd::kServerGone);
  ASSERT_FALSE(result.records.empty());
  for (const RequestRecord& record : result.records) {
    EXPECT_STREQ(name_of(record.failure), "refused");
  }
}

TEST(Load, InterruptedRunsKeepWhatEnded) {
  scripted_server::ServerThread server(script_of(kSteady));
  NullProgress progress;
  Interrupt interrupt;
  RandomIdsOptions ids;
  ids.end_id = 10;
  BodyOptions body;
  body.model = "scripted";
  const RandomIdsSource source(ids, body);
  LoadTools tools;
  tools.source = &source;
  tools.progress = &progress;
  tools.interrupt = &interrupt;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    interrupt.request();
  });
  const LoadResult result = run_load(parse_endpoint(server.url()), closed(2, 0), tools);
  later.join();
  EXPECT_EQ(result.end, LoadEnd::kInterrupted);
  EXPECT_GT(num_succeeded(result), 0);
}

TEST(Load, TightMediansEndARun) {
  LoadPlan plan = closed(4, 0);
  plan.until_ci = 0.9;
  const Driven driven = drive(script_of(kSteady), plan);
  EXPECT_EQ(driven.result.end, LoadEnd::kConverged);
}

TEST(Load, AServerThatClosesUnannouncedCostsNoRequest) {
  Script script = script_of(
      R"({"replies": [{"timing": {"first_token_s": 0.005, "token_interval_s": 0.001},
                       "http": {"after_reply": "close_unannounced"}}]})");
  const Driven driven = drive(script, closed(2, 20));
  EXPECT_EQ(num_succeeded(driven.result), 20);
}

// Many slow streams: bytes may lie for a while, and yet each event is an arrival of its own, at the
// time at which it left the server.
TEST(Load, ReadingManySocketsAtOnceChangesNoArrival) {
  DriveOptions options;
  options.output_tokens = 40;
  const Driven driven = drive(
      script_of(R"({"replies": [{"timing": {"first_token_s": 0.05, "token_interval_s": 0.02}}]})"),
      closed(150, 150), options);
  ASSERT_EQ(num_succeeded(driven.result), 150);
  const SelfMeasure& self = driven.result.self;
  const auto slowest = std::max_element(self.receive_delay_s.begin(), self.receive_delay_s.end());
  ASSERT_NE(slowest, self.receive_delay_s.end());
  if (!self.has_kernel_times) GTEST_SKIP() << "no receive time stamps";
  if (*slowest > 0.005) GTEST_SKIP() << "the machine was too busy to say";
  EXPECT_GT(self.read_window_s, 0.0);
  std::map<std::string, const scripted_server::RequestRecord*> sent;
  for (const scripted_server::RequestRecord& one : driven.log.requests) sent[one.request_id] = &one;
  std::vector<double> errors_s;
  for (const RequestRecord& record : driven.result.records) {
    const scripted_server::RequestRecord& truth = *sent.at(record.request_id);
    std::vector<double> left_s;  // of what left apart
    std::int64_t num_tokens = 0;
    for (const scripted_server::SendRecord& send : truth.sends) {
      if (send.tokens == num_tokens) continue;
      num_tokens = send.tokens;
      const double time_s = truth.started_s + send.left_s;
      if (left_s.empty() || time_s > left_s.back() + 0.005) left_s.push_back(time_s);
    }
    EXPECT_GE(record.arrivals.size(), left_s.size());
    if (record.arrivals.size() != left_s.size()) continue;
    for (std::size_t i = 0; i < left_s.size(); ++i) {
      const double arrived_s = driven.result.started_monotonic_s + *record.sent_s +
                               static_cast<double>(record.arrivals[i].offset_s);
      errors_s.push_back(std::abs(arrived_s - left_s[i]));
    }
  }
  ASSERT_GT(errors_s.size(), 1000U);
  EXPECT_LT(stats::median(errors_s), 0.5 * self.read_window_s);
}

TEST(Load, PlainAnswersHaveNoFirstToken) {
  DriveOptions options;
  options.is_stream = false;
  const Driven driven = drive(script_of(kSteady), closed(2, 6), options);
  EXPECT_EQ(num_succeeded(driven.result), 6);
  for (const RequestRecord& record : driven.result.records) {
    EXPECT_FALSE(record.first_token_s.has_value());
    EXPECT_EQ(record.output_tokens, 8);
  }
}

TEST(Load, TurnsOfAConversationFollowEachOther) {
  scripted_server::ServerThread server(script_of(kSteady));
  NullProgress progress;
  BodyOptions body;
  body.model = "scripted";
  const TextSource source({{{"a", "b", "c"}, {4, 4, 4}, "be brief"}}, Api::kChat, body, 4, 1);
  LoadTools tools;
  tools.source = &source;
  tools.progress = &progress;
  const LoadResult result = run_load(parse_endpoint(server.url()), closed(2, 4), tools);
  ASSERT_EQ(result.records.size(), 12U);
  std::vector<int> turns(3, 0);
  for (const RequestRecord& record : result.records) {
    EXPECT_TRUE(record.is_success()) << record.error;
    ++turns[static_cast<std::size_t>(record.turn)];
  }
  EXPECT_EQ(turns, (std::vector<int>{4, 4, 4}));
  // Each turn carries the talk so far.
  std::vector<std::int64_t> prompt_tokens(3, 0);
  for (const RequestRecord& record : result.records) {
    prompt_tokens[static_cast<std::size_t>(record.turn)] = record.prompt_tokens.value_or(0);
  }
  EXPECT_LT(prompt_tokens[0], prompt_tokens[1]);
  EXPECT_LT(prompt_tokens[1], prompt_tokens[2]);
}

TEST(Load, AnUnknownNameIsAnError) {
  NullProgress progress;
  RandomIdsOptions ids;
  ids.end_id = 10;
  const RandomIdsSource source(ids, BodyOptions{});
  LoadTools tools;
  tools.source = &source;
  tools.progress = &progress;
  EXPECT_THROW((void)run_load(parse_endpoint("http://name.invalid:80"), closed(1, 1), tools),
               Error);
}

}  // namespace
}  // namespace moe::client
