// Goal: the pages of real servers give the figures that are known of their runs.

#include "lib/client/server_metrics.hpp"

#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "lib/client/http_fetch.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::client {
namespace {

ServerSnapshot snapshot(const std::string& file, double time_s) {
  const std::filesystem::path folder =
      std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/server-metrics";
  return read_snapshot(parse_metrics_page(test::read_file(folder / file)), time_s);
}

MetricsPage page_of(const std::string& file) {
  return parse_metrics_page(
      test::read_file(std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/server-metrics" / file));
}

TEST(ServerMetrics, RealPagesHaveNoBadLineAndAKind) {
  for (const char* file : {"vllm_before.prom", "vllm_during.prom", "vllm_after.prom"}) {
    EXPECT_EQ(page_of(file).num_bad_lines, 0) << file;
    EXPECT_EQ(kind_of(page_of(file)), ServerKind::kVllm) << file;
  }
  EXPECT_EQ(page_of("llama_server.prom").num_bad_lines, 0);
  EXPECT_EQ(kind_of(page_of("llama_server.prom")), ServerKind::kLlamaCpp);
}

// The counts of the run are known: 48 finished requests, one broken off after its first tokens.
TEST(ServerMetrics, TheDifferenceOfTwoRealPagesIsTheRun) {
  const ServerDelta delta =
      delta_of(snapshot("vllm_before.prom", 0.0), snapshot("vllm_after.prom", 60.0));
  EXPECT_FALSE(delta.was_restarted);
  EXPECT_DOUBLE_EQ(*delta.prompt_tokens, 2307.0);
  EXPECT_DOUBLE_EQ(*delta.generated_tokens, 1156.0);
  EXPECT_DOUBLE_EQ(*delta.finished_requests, 48.0);
  EXPECT_DOUBLE_EQ(delta.ttft_s->count, 49.0);
  EXPECT_DOUBLE_EQ(delta.finished_by_reason.at("abort"), 0.0);
  EXPECT_DOUBLE_EQ(*delta.preemptions, 0.0);
  ASSERT_TRUE(delta.prefix_hit_ratio);
  EXPECT_GE(*delta.prefix_hit_ratio, 0.0);
  EXPECT_LE(*delta.prefix_hit_ratio, 1.0);
  EXPECT_GT(*delta.ttft_s->mean(), 0.0);
  EXPECT_FALSE(delta.expert_balance);
}

TEST(ServerMetrics, ABusyServerShowsItsQueue) {
  const ServerSnapshot shot = snapshot("vllm_during.prom", 1.0);
  EXPECT_DOUBLE_EQ(*shot.running, 16.0);
  EXPECT_DOUBLE_EQ(*shot.waiting, 16.0);
  EXPECT_NEAR(*shot.kv_use_ratio, 0.00293, 1e-5);
  EXPECT_DOUBLE_EQ(shot.ttft_s->count, 16.0);
}

TEST(ServerMetrics, LlamaCppHasTotalsButNoDistributions) {
  const ServerSnapshot shot = snapshot("llama_server.prom", 1.0);
  EXPECT_DOUBLE_EQ(*shot.generated_tokens_total, 1335.0);
  EXPECT_DOUBLE_EQ(*shot.prompt_tokens_total, 1580.0);
  EXPECT_DOUBLE_EQ(*shot.prefix_queried_tokens_total, 1580.0 + 1725.0);
  EXPECT_FALSE(shot.ttft_s);
  EXPECT_FALSE(shot.finished_requests_total);
}

TEST(ServerMetrics, SglangNamesRetractionsAndExpertBalance) {
  const auto at = [](const std::string& retractions, const std::string& sum,
                     const std::string& count) {
    return read_snapshot(
        parse_metrics_page(
            "sglang:num_running_reqs{model_name=\"m\"} 3\n"
            "sglang:num_queue_reqs{model_name=\"m\"} 2\n"
            "sglang:token_usage{model_name=\"m\"} 0.5\n"
            "sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 25\n"
            "sglang:num_retractions_sum " +
            retractions + "\nsglang:eplb_balancedness_sum{forward_mode=\"decode\"} " + sum +
            "\nsglang:eplb_balancedness_count{forward_mode=\"decode\"} " + count + "\n"),
        0.0);
  };
  const ServerSnapshot before = at("1", "4.0", "5");
  EXPECT_DOUBLE_EQ(*before.running, 3.0);
  EXPECT_DOUBLE_EQ(*before.waiting, 2.0);
  EXPECT_DOUBLE_EQ(*before.kv_use_ratio, 0.5);
  const ServerDelta delta = delta_of(before, at("4", "8.5", "10"));
  EXPECT_DOUBLE_EQ(*delta.preemptions, 3.0);
  EXPECT_DOUBLE_EQ(*delta.expert_balance, 0.9);
}

TEST(ServerMetrics, ARestartedServerGivesNoDifference) {
  const ServerDelta delta =
      delta_of(snapshot("vllm_after.prom", 0.0), snapshot("vllm_before.prom", 60.0));
  EXPECT_TRUE(delta.was_restarted);
  EXPECT_FALSE(delta.generated_tokens);
  EXPECT_FALSE(delta.ttft_s);
}

scripted_server::Script slow_script() {
  scripted_server::Script script;
  script.version = "7.8";
  scripted_server::Reply reply;
  reply.tokens.texts = {" a"};
  reply.tokens.limit = 3;
  reply.timing.first_token_s = 0.001;
  reply.timing.token_interval_s = 0.001;
  script.replies.push_back(reply);
  return script;
}

TEST(ServerMetrics, ThePollerSeesTheLoadOfALiveServer) {
  scripted_server::ServerThread server(slow_script());
  const Endpoint endpoint = parse_endpoint(server.url());
  const SteadyClock clock;
  MetricsPoller poller(endpoint, 0.02, clock, clock.now_s());
  const std::optional<ServerSnapshot> before = poller.read_now();
  ASSERT_TRUE(before);
  poller.start();
  FetchOptions options;
  options.post_body = R"({"model":"scripted","prompt":[1,2],"max_tokens":3})";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(http_fetch(endpoint, "/v1/completions", options).status, 200);
  }
  const std::optional<ServerSnapshot> after = poller.read_now();
  ASSERT_TRUE(after);
  const std::vector<ServerSnapshot> during = poller.stop();
  for (std::size_t i = 1; i < during.size(); ++i) {
    EXPECT_GE(during[i].time_s, during[i - 1].time_s);
  }
  const ServerDelta delta = delta_of(*before, *after);
  EXPECT_DOUBLE_EQ(*delta.generated_tokens, 15.0);
  EXPECT_DOUBLE_EQ(*delta.prompt_tokens, 10.0);
  EXPECT_DOUBLE_EQ(*delta.finished_requests, 5.0);
  EXPECT_EQ(poller.num_failed(), 0);
}

TEST(ServerMetrics, AServerWithoutThePageIsNoError) {
  scripted_server::Script script = slow_script();
  script.has_metrics = false;
  scripted_server::ServerThread server(script);
  const SteadyClock clock;
  MetricsPoller poller(parse_endpoint(server.url()), 0.02, clock, 0.0);
  EXPECT_FALSE(poller.read_now());
  EXPECT_EQ(poller.num_failed(), 1);
}

}  // namespace
}  // namespace moe::client
