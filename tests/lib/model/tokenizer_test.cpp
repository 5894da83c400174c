#include "lib/model/tokenizer.hpp"

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace moe::model {
namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer load_tokenizer(const std::string& name) {
  return Tokenizer::load(std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/tokenizers" / name /
                         "tokenizer.json");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = load_tokenizer("bl-qwen2");
  EXPECT_EQ(tokenizer.max_id(), 704);
  EXPECT_EQ(tokenizer.num_tokens(), 705);
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 702);
  EXPECT_EQ(tokenizer.id_to_token(702), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_special(702));
  EXPECT_FALSE(tokenizer.is_special(703));  // <think> is added but not special
  EXPECT_FALSE(tokenizer.is_special(5));
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(705), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_TRUE(tokenizer.warnings().empty());
}

TEST(Tokenizer, LeavesOutIdsWithoutAToken) {
  const Tokenizer tokenizer = load_tokenizer("bl-qwen2");
  const Ids ids = tokenizer.encode("ab", false);
  Ids with_others = {-1, 1 << 30};
  with_others.insert(with_others.end(), ids.begin(), ids.end());
  EXPECT_EQ(tokenizer.decode(with_others, false), "ab");
  TokenStream stream(tokenizer, false);
  EXPECT_EQ(stream.push(-1), "");
}

TEST(Tokenizer, MayBeUsedByManyThreads) {
  const Tokenizer tokenizer = load_tokenizer("bl-o200k");
  const std::string text =
      "It's 12345 CamelCase words, \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\r\n  end";
  const Ids expected = tokenizer.encode(text, true);
  std::vector<std::thread> threads;
  std::vector<Ids> results(8);
  for (Ids& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = tokenizer.encode(text, true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, AWordOfManyTokensTakesNoQuadraticTime) {
  // One pre-token of 400 thousand letters; a quadratic merge loop needs minutes.
  const Tokenizer tokenizer = load_tokenizer("bl-gpt2-strings");
  const std::string text(400'000, 'e');
  const Ids ids = tokenizer.encode(text, false);
  EXPECT_EQ(tokenizer.decode(ids, false), text);
}

TEST(TokenStream, StartsAnewAfterFlush) {
  const Tokenizer tokenizer = load_tokenizer("bl-qwen2");
  const Ids ids = tokenizer.encode("\xF0\x9F\x98\x80", false);
  ASSERT_GT(ids.size(), 1U);
  TokenStream stream(tokenizer, false);
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.flush(), "");
}

TEST(TokenStream, OutlivesTheTokenizerObject) {
  std::vector<TokenStream> streams;
  Ids ids;
  {
    const Tokenizer tokenizer = load_tokenizer("spm-prepend-strings");
    ids = tokenizer.encode("hello world", false);
    streams.emplace_back(tokenizer, true);
  }
  std::string text;
  for (const std::int32_t id : ids) text += streams[0].push(id);
  EXPECT_EQ(text + streams[0].flush(), "hello world");
}

TEST(TokenStream, GivesTheWholeTextWhereverItIsCut) {
  const Tokenizer tokenizer = load_tokenizer("checkpoint-bytelevel");
  const Ids ids = tokenizer.encode(
      "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 end",
      false);
  for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
    const Ids head(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
    TokenStream stream(tokenizer, false);
    std::string text;
    for (const std::int32_t id : head) text += stream.push(id);
    EXPECT_EQ(text + stream.flush(), tokenizer.decode(head, false)) << cut;
  }
}

}  // namespace
}  // namespace moe::model
