// Goal: a trace that was written reads back equal, byte layout included, and a file that is not a
// trace is refused with the reason. Method: write through TraceWriter, then damage the bytes.

#include "lib/routing/trace.hpp"

#include <cstring>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/routing/trace_writer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::routing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceInfo small_info() {
  TraceInfo info;
  info.model = "tiny";
  info.num_layers = 3;
  info.num_experts = 8;
  info.top_k = 2;
  info.extra["prompt_tokens"] = "2";
  return info;
}

// Two requests: a prefill of two tokens each in layers 1 and 2, then one decode step.
void write_small(const std::filesystem::path& file, bool flush_between) {
  TraceWriter writer(file, small_info());
  writer.reserve(8);
  const std::vector<std::int32_t> ids = {0, 7, 1, 6, 2, 5, 3, 4};
  const std::vector<float> weights = {0.75F, 0.25F, 0.5F, 0.5F, 0.9F, 0.1F, 0.6F, 0.4F};
  const std::vector<std::int32_t> requests = {0, 0, 1, 1};
  const std::vector<std::int64_t> tokens = {0, 1, 0, 1};
  writer.append(
      {4, ids.data(), weights.data(), requests.data(), tokens.data(), 0, 1, Phase::kPrefill, 0.5});
  if (flush_between) writer.flush();
  writer.append(
      {4, ids.data(), weights.data(), requests.data(), tokens.data(), 0, 2, Phase::kPrefill, 0.75});
  const std::vector<std::int32_t> decode_requests = {0, 1};
  const std::vector<std::int64_t> decode_tokens = {2, 2};
  writer.append({2, ids.data(), weights.data(), decode_requests.data(), decode_tokens.data(), 1, 1,
                 Phase::kDecode, 1.0});
  EXPECT_EQ(writer.num_rows(), 10);
  writer.commit();
}

std::string message_of(const std::filesystem::path& file, const TraceLimits& limits = {}) {
  try {
    (void)read_trace(file, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

TEST(Trace, ReadsBackWhatWasWritten) {
  const test::TempDir dir;
  const std::filesystem::path file = dir.path() / "trace.safetensors";
  write_small(file, false);
  const Trace trace = read_trace(file);
  EXPECT_EQ(trace.info.model, "tiny");
  EXPECT_EQ(trace.info.num_layers, 3);
  EXPECT_EQ(trace.info.num_experts, 8);
  EXPECT_EQ(trace.info.top_k, 2);
  EXPECT_EQ(trace.info.extra.at("prompt_tokens"), "2");
  ASSERT_EQ(trace.num_rows(), 10);
  EXPECT_THAT(trace.layer, ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 1, 1));
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(trace.request, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 0, 1));
  EXPECT_THAT(trace.token, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 2, 2));
  EXPECT_EQ(trace.ids[1], 7);
  EXPECT_EQ(trace.weights[4], 0.9F);
  EXPECT_EQ(trace.time_s[9], 1.0);
  EXPECT_EQ(trace.phase[9], Phase::kDecode);
}

TEST(Trace, IsTheSameFileWhereverItWasFlushed) {
  const test::TempDir dir;
  write_small(dir.path() / "a", false);
  write_small(dir.path() / "b", true);
  EXPECT_EQ(test::read_file(dir.path() / "a"), test::read_file(dir.path() / "b"));
}

TEST(Trace, CountsTokensPerLayerExpertAndPhase) {
  const test::TempDir dir;
  write_small(dir.path() / "t", false);
  const Trace trace = read_trace(dir.path() / "t");
  const auto prefill = trace.expert_counts(Phase::kPrefill);
  EXPECT_TRUE(prefill[0].empty());
  EXPECT_THAT(prefill[1], ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(trace.expert_counts(Phase::kDecode)[1], ElementsAre(1, 1, 0, 0, 0, 0, 1, 1));
}

TEST(Trace, OfNoRowsIsAValidFile) {
  const test::TempDir dir;
  TraceWriter writer(dir.path() / "t", small_info());
  writer.commit();
  EXPECT_EQ(read_trace(dir.path() / "t").num_rows(), 0);
}

TEST(Trace, IsNotThereUnlessCommitted) {
  const test::TempDir dir;
  {
    TraceWriter writer(dir.path() / "t", small_info());
    writer.flush();
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Trace, RefusesToStartInAFolderThatIsNotThere) {
  const test::TempDir dir;
  EXPECT_THROW(TraceWriter(dir.path() / "missing" / "t", small_info()), Error);
}

TEST(Trace, RefusesATruncatedFile) {
  const test::TempDir dir;
  const std::filesystem::path file = dir.path() / "t";
  write_small(file, false);
  const std::string bytes = test::read_file(file);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{40}, bytes.size() - 1}) {
    test::write_file(file, bytes.substr(0, length));
    EXPECT_THAT(message_of(file), HasSubstr(file.string())) << length;
  }
}

// Rewrites the header of a good file and says what the reader makes of it.
std::string message_with(const std::function<void(nlohmann::ordered_json&)>& change) {
  const test::TempDir dir;
  const std::filesystem::path file = dir.path() / "t";
  write_small(file, false);
  const std::string bytes = test::read_file(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const std::string data = bytes.substr(8 + length);
  auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  change(header);
  const std::string text = header.dump();
  length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  test::write_file(file, prefix + text + data);
  return message_of(file);
}

TEST(Trace, RefusesHeadersThatDoNotFit) {
  using J = nlohmann::ordered_json;
  EXPECT_EQ(message_with([](J&) {}), "");
  EXPECT_THAT(message_with([](J& h) { h["__metadata__"]["format"] = "other"; }),
              HasSubstr("moekit-routing-trace"));
  EXPECT_THAT(message_with([](J& h) { h["__metadata__"]["schema_version"] = "2"; }),
              HasSubstr("schema_version"));
  EXPECT_THAT(message_with([](J& h) { h["__metadata__"]["top_k"] = "9"; }), HasSubstr("top_k"));
  EXPECT_THAT(message_with([](J& h) { h["__metadata__"]["num_experts"] = "4"; }),
              HasSubstr("ids row"));
  EXPECT_THAT(message_with([](J& h) { h["__metadata__"]["num_layers"] = "2"; }),
              HasSubstr("layer row"));
  EXPECT_THAT(message_with([](J& h) { h.erase("step"); }), HasSubstr("step is missing"));
  EXPECT_THAT(message_with([](J& h) { h["ids"]["dtype"] = "I64"; }), HasSubstr("dtype I32"));
  EXPECT_THAT(message_with([](J& h) { h["ids"]["shape"] = {10, 3}; }), HasSubstr("top_k"));
  EXPECT_THAT(message_with([](J& h) { h["token"]["shape"] = {9}; }), HasSubstr("rows"));
  EXPECT_THAT(message_with([](J& h) {
                h["token"]["data_offsets"] = {0, 1 << 20};
              }),
              HasSubstr("token"));
  EXPECT_THAT(message_with([](J& h) { h["token"]["data_offsets"] = {40, 0}; }), HasSubstr("token"));
  EXPECT_THAT(message_with([](J& h) { h["ids"]["shape"] = {-1, 2}; }), HasSubstr("ids"));
  // The weights read as step numbers do not ascend.
  EXPECT_THAT(message_with([](J& h) { h["step"]["data_offsets"] = {160, 200}; }), HasSubstr("row"));
}

TEST(Trace, RefusesMoreRowsThanAllowed) {
  const test::TempDir dir;
  write_small(dir.path() / "t", false);
  EXPECT_THAT(message_of(dir.path() / "t", {.max_rows = 9}), HasSubstr("rows"));
  EXPECT_THAT(message_of(dir.path() / "t", {.max_header_bytes = 16}), HasSubstr("header"));
}

}  // namespace
}  // namespace moe::routing
