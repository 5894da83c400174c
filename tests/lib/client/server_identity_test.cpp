// Goal: what a server says about itself is read from each make's own endpoints.

#include <filesystem>

#include <gtest/gtest.h>

#include "lib/client/server_metrics.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::client {
namespace {

TEST(ServerIdentity, VllmTellsModelVersionLengthAndCache) {
  IdentityTexts texts;
  texts.models = R"({"object":"list","data":[{"id":"m","max_model_len":2048,"owned_by":"vllm"}]})";
  texts.version = R"({"version":"0.32.0"})";
  texts.metrics = test::read_file(std::filesystem::path(MOE_SOURCE_DIR) /
                                  "tests/data/server-metrics/vllm_before.prom");
  const ServerIdentity identity = read_identity(texts);
  EXPECT_EQ(identity.kind, ServerKind::kVllm);
  EXPECT_EQ(identity.version, "0.32.0");
  ASSERT_EQ(identity.models.size(), 1U);
  EXPECT_EQ(identity.models[0], "m");
  EXPECT_EQ(*identity.max_model_tokens, 2048);
  // 2,048 bytes a token in 1 GiB of cache.
  EXPECT_DOUBLE_EQ(*identity.kv_cache_tokens, 524288.0);
}

TEST(ServerIdentity, LlamaCppTellsItsContextAndBuild) {
  IdentityTexts texts;
  texts.models = R"({"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx":4096}}]})";
  texts.props = R"({"build_info":"b1-abc"})";
  const ServerIdentity identity = read_identity(texts);
  EXPECT_EQ(identity.kind, ServerKind::kLlamaCpp);
  EXPECT_EQ(identity.version, "b1-abc");
  EXPECT_EQ(*identity.max_model_tokens, 4096);
}

TEST(ServerIdentity, NonsenseIsAnUnknownServer) {
  IdentityTexts texts;
  texts.models = "<html>";
  texts.version = "[1]";
  texts.server_info = "";
  texts.props = R"({"build_info":7})";
  texts.metrics = "nonsense\n{}";
  const ServerIdentity identity = read_identity(texts);
  EXPECT_EQ(identity.kind, ServerKind::kUnknown);
  EXPECT_TRUE(identity.version.empty());
  EXPECT_TRUE(identity.models.empty());
}

TEST(ServerIdentity, EachMakeIsKnownByWhatItAnswers) {
  using scripted_server::Dialect;
  const std::vector<std::pair<Dialect, ServerKind>> makes = {
      {Dialect::kVllm, ServerKind::kVllm},
      {Dialect::kSglang, ServerKind::kSglang},
      {Dialect::kLlamaCpp, ServerKind::kLlamaCpp}};
  for (const auto& [dialect, kind] : makes) {
    scripted_server::Script script;
    script.dialect = dialect;
    script.version = "4.5";
    script.replies.emplace_back();
    script.replies[0].tokens.texts = {" a"};
    scripted_server::ServerThread server(script);
    const ServerIdentity identity = identify_server(parse_endpoint(server.url()));
    EXPECT_EQ(identity.kind, kind);
    EXPECT_EQ(identity.version, "4.5");
    ASSERT_EQ(identity.models.size(), 1U);
    EXPECT_EQ(identity.models[0], "scripted");
  }
}

TEST(ServerIdentity, AServerThatIsNotThereIsUnknown) {
  std::string url;
  {
    scripted_server::Script script;
    script.replies.emplace_back();
    script.replies[0].tokens.texts = {" a"};
    url = scripted_server::ServerThread(script).url();
  }
  EXPECT_EQ(identify_server(parse_endpoint(url)).kind, ServerKind::kUnknown);
}

}  // namespace
}  // namespace moe::client
