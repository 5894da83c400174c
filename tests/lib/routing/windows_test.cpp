// Goal: windows hold every assignment once, whatever their unit, and say what they cannot be.

#include "lib/routing/windows.hpp"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/synthetic.hpp"
#include "tests/lib/routing/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using ::testing::HasSubstr;

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

SyntheticSpec small_spec() {
  SyntheticSpec spec;
  spec.num_layers = 2;
  spec.num_experts = 8;
  spec.top_k = 2;
  spec.num_tokens = 1000;
  spec.tokens_per_step = 30;
  spec.step_s = 0.1;
  return spec;
}

TEST(Windows, OfAnyLengthAddUpToTheWhole) {
  for (const std::int64_t block_tokens : {7, 30, 1024}) {
    RoutingInput input = make_synthetic(small_spec(), block_tokens);
    const std::vector<std::int64_t> whole = count_windows(input).total();
    EXPECT_EQ(sum_of(whole), 1000 * 2 * 2);
    for (const char* text :
         {"1tokens", "64tokens", "999tokens", "1steps", "5steps", "250ms", "1s"}) {
      EXPECT_EQ(count_windows(input, parse_window(text)).total(), whole) << text << block_tokens;
    }
  }
}

TEST(Windows, OfTokensHoldSoManyTokens) {
  RoutingInput input = make_synthetic(small_spec(), 13);
  WindowSpec spec = parse_window("300tokens");
  const ExpertCounts all = count_windows(input, spec);
  EXPECT_EQ(all.num_windows(), 4);
  EXPECT_EQ(all.windows[0].num_tokens, 300);
  EXPECT_EQ(all.windows[3].num_tokens, 100);
  EXPECT_EQ(sum_of(all.window(1)), 300 * 2 * 2);
  spec.drop_partial = true;
  EXPECT_EQ(count_windows(input, spec).num_windows(), 3);
}

TEST(Windows, OfStepsHoldSoManySteps) {
  RoutingInput input = make_synthetic(small_spec(), 1024);
  const ExpertCounts counts = count_windows(input, parse_window("10steps"));
  EXPECT_EQ(counts.num_windows(), 4);  // 34 steps
  EXPECT_EQ(counts.windows[1].first_step, 10);
  EXPECT_EQ(counts.windows[1].last_step, 19);
  EXPECT_EQ(counts.windows[1].num_tokens, 300);
}

TEST(Windows, OfSecondsPassEmptyOnesOn) {
  const moe::test::TempDir dir;
  moe::test::write_file(dir / "t.jsonl",
                        "{\"layer\": 0, \"step\": 0, \"time_s\": 10.0, \"topk_ids\": [0, 1]}\n"
                        "{\"layer\": 0, \"step\": 1, \"time_s\": 10.4, \"topk_ids\": [0, 2]}\n"
                        "{\"layer\": 0, \"step\": 2, \"time_s\": 13.1, \"topk_ids\": [3, 1]}\n");
  RoutingInput input = open_input((dir / "t.jsonl").string());
  const ExpertCounts counts = count_windows(input, parse_window("1s"));
  ASSERT_EQ(counts.num_windows(), 4);
  EXPECT_EQ(sum_of(counts.window(0)), 4);
  EXPECT_EQ(sum_of(counts.window(1)), 0);
  EXPECT_EQ(sum_of(counts.window(2)), 0);
  EXPECT_EQ(sum_of(counts.window(3)), 2);
  EXPECT_DOUBLE_EQ(*counts.windows[3].begin_s, 13.0);
  EXPECT_EQ(counts.windows[2].num_tokens, 0);
}

TEST(Windows, SayWhatAnInputCannotGive) {
  RoutingInput counts = open_input(test::data_file("synthetic_sglang_stat.pt"));
  RoutingInput tokens = open_input(test::data_file("esft/law_topk.npy"));
  const auto message_of = [](RoutingInput& input, const char* window) -> std::string {
    try {
      (void)count_windows(input, parse_window(window));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(counts, "256tokens"), HasSubstr("counts only"));
  EXPECT_THAT(message_of(counts, "5m"), HasSubstr("time stamps"));
  EXPECT_THAT(message_of(tokens, "500ms"), HasSubstr("time stamps"));
}

TEST(Windows, AreParsedStrictly) {
  EXPECT_EQ(parse_window("whole").unit, WindowUnit::kWhole);
  EXPECT_EQ(parse_window("12steps").length, 12.0);
  EXPECT_DOUBLE_EQ(parse_window("500ms").length, 0.5);
  EXPECT_DOUBLE_EQ(parse_window("5m").length, 300.0);
  for (const char* text :
       {"", "12", "0tokens", "tokens", "-3s", "0s", "4 tokens", "9999999999999tokens"}) {
    EXPECT_THROW((void)parse_window(text), Error) << text;
  }
}

}  // namespace
}  // namespace moe::routing
