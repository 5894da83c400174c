// The pure parts around a load run: saturation, knee, figures, sources, bodies, addresses.

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/client/knee.hpp"
#include "lib/client/load.hpp"
#include "lib/client/load_figures.hpp"

namespace moe::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A request with one token an arrival.
RequestRecord record_of(double sent_s, const std::vector<double>& offsets_s) {
  RequestRecord record;
  record.intended_s = sent_s;
  record.sent_s = sent_s;
  record.first_token_s = sent_s + offsets_s.front();
  record.first_visible_s = record.first_token_s;
  record.last_token_s = sent_s + offsets_s.back();
  record.end_s = record.last_token_s;
  record.num_sends = 1;
  record.token_source = TokenSource::kTokenIds;
  record.has_exact_arrivals = true;
  for (const double offset_s : offsets_s) {
    record.arrivals.push_back({static_cast<float>(offset_s), 1.0F});
  }
  record.output_tokens = static_cast<std::int64_t>(offsets_s.size());
  record.id_output_tokens = record.output_tokens;
  return record;
}

LoadResult result_of(std::vector<RequestRecord> records) {
  LoadResult result;
  for (RequestRecord& record : records) {
    result.measured_end_s = std::max(result.measured_end_s, record.end_s.value_or(0.0));
    result.records.push_back(std::move(record));
  }
  return result;
}

TEST(LoadFigures, TheFirstTokenIsInNoGap) {
  const LoadFigures figures = figures_of(result_of({record_of(1.0, {1.0, 1.01, 1.02})}), {});
  EXPECT_THAT(figures.ttft_s, ElementsAre(::testing::DoubleEq(1.0)));
  ASSERT_EQ(figures.itl_s.size(), 2U);
  EXPECT_NEAR(figures.itl_s[0], 0.01, 1e-6);
  EXPECT_NEAR(figures.tpot_s[0], 0.01, 1e-6);
}

TEST(LoadFigures, BundlesCountByTheirTokens) {
  RequestRecord record = record_of(0.0, {0.08, 0.16, 0.24});
  for (TokenArrival& arrival : record.arrivals) arrival.num_tokens = 8.0F;
  record.output_tokens = 24;
  record.id_output_tokens = 24;
  const LoadFigures figures = figures_of(result_of({record}), {});
  ASSERT_EQ(figures.icl_s.size(), 2U);
  EXPECT_NEAR(figures.icl_s[0], 0.08, 1e-6);
  ASSERT_EQ(figures.itl_s.size(), 16U);
  for (const double gap_s : figures.itl_s) EXPECT_NEAR(gap_s, 0.01, 1e-6);
  EXPECT_NEAR(*figures.tokens_per_arrival, 8.0, 1e-9);
  EXPECT_NEAR(figures.tpot_s[0], 0.16 / 23.0, 1e-6);
}

TEST(LoadFigures, EventsOfOneReadAreOneArrival) {
  RequestRecord record = record_of(0.0, {0.1, 0.1, 0.1, 0.2, 0.2, 0.2});
  const LoadFigures figures = figures_of(result_of({record}), {});
  ASSERT_EQ(figures.icl_s.size(), 1U);
  ASSERT_EQ(figures.itl_s.size(), 3U);
  EXPECT_NEAR(figures.itl_s[0], 0.1 / 3.0, 1e-6);
}

TEST(LoadFigures, FailuresAreCountedAndInNoLatency) {
  RequestRecord failed = record_of(0.0, {0.001});
  failed.failure = Failure::kErrorEvent;
  const LoadFigures figures = figures_of(result_of({failed, record_of(0.0, {0.5, 0.6})}), {});
  EXPECT_EQ(figures.num_requests, 2);
  EXPECT_EQ(figures.num_succeeded, 1);
  EXPECT_EQ(figures.failures[static_cast<std::size_t>(Failure::kErrorEvent)], 1);
  EXPECT_THAT(figures.ttft_s, ElementsAre(::testing::DoubleEq(0.5)));
  EXPECT_EQ(figures.output_tokens, 2);
}

TEST(LoadFigures, RatesAreAbsentWithoutACount) {
  RequestRecord record = record_of(0.0, {0.1, 0.2});
  record.token_source = TokenSource::kNone;
  record.output_tokens.reset();
  record.id_output_tokens.reset();
  const LoadFigures figures = figures_of(result_of({record}), {});
  EXPECT_FALSE(figures.output_tokens_per_s.has_value());
  EXPECT_TRUE(figures.itl_s.empty());
  EXPECT_EQ(figures.icl_s.size(), 1U);  // gaps need no count
  EXPECT_TRUE(figures_of({}, {}).ttft_s.empty());
}

TEST(LoadFigures, ABusySecondIsNoSlowerThanTheMean) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 50; ++i) records.push_back(record_of(0.1 * i, {0.05, 0.1, 0.15, 2.0}));
  const LoadFigures figures = figures_of(result_of(records), {});
  ASSERT_TRUE(figures.peak_output_tokens_per_s && figures.output_tokens_per_s);
  EXPECT_GE(*figures.peak_output_tokens_per_s, *figures.output_tokens_per_s);
  EXPECT_TRUE(figures.violations.empty());
  double binned = 0.0;
  for (const TimeBin& bin : figures.bins) binned += bin.output_tokens;
  EXPECT_NEAR(binned, 200.0, 1e-3);
}

TEST(LoadFigures, GoodputTakesAMissingValueForAMiss) {
  ServiceLevel level;
  level.ttft_s = 0.3;
  level.tpot_s = 0.05;
  RequestRecord cut = record_of(0.0, {0.1, 0.2});
  cut.failure = Failure::kTruncated;
  const LoadFigures figures =
      figures_of(result_of({record_of(0.0, {0.2, 0.24}), record_of(0.0, {0.4, 0.44}),
                            record_of(0.0, {0.2, 0.9}), cut}),
                 level);
  EXPECT_DOUBLE_EQ(*figures.shares.all, 0.25);
  EXPECT_DOUBLE_EQ(*figures.shares.ttft, 0.5);
  EXPECT_DOUBLE_EQ(*figures.shares.tpot, 0.5);
  EXPECT_FALSE(figures.shares.e2e.has_value());
}

TEST(LoadFigures, DispersionTellsPoissonFromClockwork) {
  std::vector<RequestRecord> even;
  std::vector<RequestRecord> poisson;
  Rng rng(3);
  double time_s = 0.0;
  for (int i = 0; i < 20'000; ++i) {
    even.push_back(record_of(0.005 * i, {0.1}));
    time_s -= 0.005 * std::log(1.0 - rng.next_uniform());
    poisson.push_back(record_of(time_s, {0.1}));
  }
  EXPECT_LT(*figures_of(result_of(even), {}).dispersion, 0.05);
  EXPECT_NEAR(*figures_of(result_of(poisson), {}).dispersion, 1.0, 0.1);
  EXPECT_NEAR(*figures_of(result_of(poisson), {}).gap_cv, 1.0, 0.05);
}

TEST(ClientVerdict, NamesWhatWasTooSlow) {
  LoadResult result;
  result.self.wall_s = 10.0;
  result.self.num_loops = 1;
  result.self.cpu_s = 2.0;
  result.self.send_lag_s.assign(1000, 0.0005);
  EXPECT_FALSE(judge_client(result, {}).is_bound);
  result.self.send_lag_s.insert(result.self.send_lag_s.end(), 20, 0.5);
  result.self.cpu_s = 9.9;
  const ClientVerdict verdict = judge_client(result, {});
  EXPECT_TRUE(verdict.is_bound);
  EXPECT_EQ(verdict.reasons.size(), 2U);
}

TEST(MergeRounds, PoolsSamplesAndKeepsTimeGoingOn) {
  const LoadResult merged =
      merge_rounds({result_of({record_of(0.0, {0.5})}), result_of({record_of(0.1, {0.5})})});
  ASSERT_EQ(merged.records.size(), 2U);
  EXPECT_DOUBLE_EQ(*merged.records[1].sent_s, 0.6);
  EXPECT_EQ(merged.records[1].index, 1);
  EXPECT_EQ(figures_of(merged, {}).ttft_s.size(), 2U);
}

std::vector<InFlightSample> flights(double slope_per_s, double base) {
  std::vector<InFlightSample> samples;
  for (int i = 0; i < 400; ++i) {
    const double time_s = 0.05 * i;
    samples.push_back({time_s, static_cast<std::int64_t>(base + slope_per_s * time_s)});
  }
  return samples;
}

TEST(Saturation, IsAQueueThatOnlyGrows) {
  std::vector<TimedValue> growing;
  std::vector<TimedValue> flat;
  for (int i = 0; i < 400; ++i) {
    growing.push_back({0.05 * i, 0.1 + 0.02 * i});
    flat.push_back({0.05 * i, 0.1});
  }
  EXPECT_TRUE(is_saturated(flights(5.0, 2.0), growing, 20.0));
  EXPECT_FALSE(is_saturated(flights(0.0, 50.0), flat, 20.0));
  EXPECT_FALSE(is_saturated(flights(5.0, 2.0), flat, 20.0));
  EXPECT_FALSE(is_saturated({}, {}, 20.0));
}

TEST(Knee, FindsTheHighestLoadThatHolds) {
  const auto below = [](double limit) {
    return [limit](double load) { return std::optional<bool>(load <= limit); };
  };
  const Knee knee = find_knee({.start = 1.0}, below(10.7));
  EXPECT_TRUE(knee.is_bounded);
  EXPECT_LE(knee.best, 10.7);
  EXPECT_GT(knee.best, 10.7 / 1.1);
  // From above, and whole numbers.
  const Knee whole = find_knee({.start = 64.0, .is_whole = true}, below(5.0));
  EXPECT_EQ(whole.best, 5.0);
  const Knee none = find_knee({.start = 8.0, .is_whole = true}, below(0.0));
  EXPECT_EQ(none.best, 0.0);
  EXPECT_TRUE(none.is_bounded);
  const Knee all = find_knee({.start = 1.0, .max_load = 16.0}, below(1e9));
  EXPECT_EQ(all.best, 16.0);
  EXPECT_FALSE(all.is_bounded);
}

std::vector<int> prompt_of(const RequestSpec& spec) {
  return nlohmann::json::parse(spec.body)["prompt"].get<std::vector<int>>();
}

TEST(RandomIds, LengthsAreExactAndTheSeedDecides) {
  RandomIdsOptions options;
  options.prompt_tokens = workload::LengthDistribution::uniform(10, 20);
  options.output_tokens = workload::LengthDistribution::fixed(7);
  options.first_id = 5;
  options.end_id = 50;
  const RandomIdsSource source(options, {});
  const RandomIdsSource twin(options, {});
  options.seed = 1;
  const RandomIdsSource other(options, {});
  int num_equal = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const RequestSpec spec = *source.make(i, {});
    EXPECT_EQ(spec.body, twin.make(i, {})->body);
    num_equal += spec.body == other.make(i, {})->body ? 1 : 0;
    const std::vector<int> ids = prompt_of(spec);
    EXPECT_EQ(static_cast<std::int64_t>(ids.size()), spec.prompt_tokens);
    EXPECT_GE(ids.size(), 10U);
    EXPECT_LE(ids.size(), 20U);
    EXPECT_THAT(ids, ::testing::Each(::testing::AllOf(::testing::Ge(5), ::testing::Lt(50))));
    EXPECT_EQ(nlohmann::json::parse(spec.body)["max_tokens"], 7);
  }
  EXPECT_EQ(num_equal, 0);
}

TEST(RandomIds, PrefixesAreSharedWithinAGroupOnly) {
  RandomIdsOptions options;
  options.prompt_tokens = workload::LengthDistribution::fixed(40);
  options.end_id = 1000;
  options.prefix_tokens = 30;
  options.num_prefixes = 2;
  const RandomIdsSource source(options, {});
  std::set<std::vector<int>> heads;
  std::set<std::vector<int>> tails;
  for (std::int64_t i = 0; i < 40; ++i) {
    const std::vector<int> ids = prompt_of(*source.make(i, {}));
    heads.insert({ids.begin(), ids.begin() + 30});
    tails.insert({ids.begin() + 30, ids.end()});
  }
  EXPECT_EQ(heads.size(), 2U);
  EXPECT_EQ(tails.size(), 40U);
}

TEST(TraceSource, SharedBlocksAreSharedBeginnings) {
  RandomIdsOptions options;
  options.end_id = 1000;
  const TraceSource source({{0.0, 1100, 5, {7, 8, 9}}, {1.0, 1100, 6, {7, 8, 10}}}, options, {});
  const std::vector<int> a = prompt_of(*source.make(0, {}));
  const std::vector<int> b = prompt_of(*source.make(1, {}));
  ASSERT_EQ(a.size(), 1100U);
  ASSERT_EQ(b.size(), 1100U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 1024, a.end(), b.begin() + 1024));
}

TEST(Conversations, ReadsTheFormsPeopleHave) {
  const std::vector<TextConversation> sharegpt = parse_conversations(
      R"([{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"},
                             {"from": "human", "value": "more"}]},
          {"conversations": [{"from": "gpt", "value": "nobody asked"}]}])",
      "x", 0);
  ASSERT_EQ(sharegpt.size(), 1U);
  EXPECT_THAT(sharegpt[0].turns, ElementsAre("hi", "more"));
  const std::vector<TextConversation> lines = parse_conversations(
      "{\"prompt\": \"a\", \"output_tokens\": 9}\n\n"
      "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
      "\"content\": \"b\"}]}\n{\"turns\": [\"c\", \"d\", \"e\"]}\n",
      "x", 2);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0].output_tokens, ElementsAre(9));
  EXPECT_EQ(lines[1].system, "s");
  EXPECT_THAT(lines[2].turns, ElementsAre("c", "d"));
}

TEST(Conversations, RefusesWithThePlace) {
  const auto failure = [](const std::string& text) -> std::string {
    try {
      (void)parse_conversations(text, "data", 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failure(""), HasSubstr("found none"));
  EXPECT_THAT(failure("{\"prompt\": \"a\"}\n{\"x\": 1}\n"), HasSubstr("data: line 2"));
  EXPECT_THAT(failure("{\"prompt\": \"a\", \"output_tokens\": -1}"), HasSubstr("output_tokens"));
  EXPECT_THAT(failure("[1]"), HasSubstr("entry 0"));
  EXPECT_THAT(failure("{\"prompt\": "), HasSubstr("line 1"));
}

TEST(TextSource, LaterRoundsAndTurnsDiffer) {
  const TextSource source({{{"a", "b"}, {0, 0}, ""}}, Api::kChat, {}, 16, 1);
  const std::string first = source.make(0, {})->body;
  EXPECT_NE(first, source.make(1, {})->body);
  const auto messages = nlohmann::json::parse(source.make(0, {"answer"})->body)["messages"];
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[1]["content"], "answer");
  EXPECT_FALSE(source.make(0, {"x", "y"}).has_value());
}

TEST(RequestBody, IsJsonWhateverTheText) {
  BodyOptions options;
  options.model = "m\"x";
  options.extra = "\"top_k\":3";
  const auto body = nlohmann::json::parse(text_body(options, "a\n\"\x01\xff", 5));
  EXPECT_EQ(body["model"], "m\"x");
  EXPECT_EQ(body["top_k"], 3);
  EXPECT_EQ(body["stream_options"]["continuous_usage_stats"], true);
  for (const OptionalField& field : optional_fields()) options.*field.wish = false;
  options.is_stream = false;
  const auto plain = nlohmann::json::parse(text_body(options, "a", 0));
  EXPECT_FALSE(plain.contains("stream"));
  EXPECT_FALSE(plain.contains("max_tokens"));
  EXPECT_FALSE(plain.contains("ignore_eos"));
}

TEST(Endpoint, TakesTheUsualForms) {
  EXPECT_EQ(parse_endpoint("localhost:8000").base_url, "http://localhost:8000");
  EXPECT_EQ(parse_endpoint("http://h:1/v1/").base_url, "http://h:1");
  EXPECT_EQ(parse_endpoint("https://host").display, "host:443");
  EXPECT_TRUE(parse_endpoint("https://host").is_tls);
  EXPECT_EQ(parse_endpoint("http://[::1]:80/api/v1").base_url, "http://[::1]:80/api");
  for (const char* bad : {"", "ftp://x", "http://", "http://x?y=1", "http://a b"}) {
    EXPECT_THROW((void)parse_endpoint(bad), Error) << bad;
  }
  try {
    (void)parse_endpoint("http://me:secret@host");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace moe::client
