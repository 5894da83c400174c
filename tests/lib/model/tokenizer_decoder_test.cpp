// Decoder chains that the vectors do not reach; expected texts worked out from the reference rules.

#include "lib/model/tokenizer_decoder.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moe::model::tokenizer_detail {
namespace {

const std::string kUnknown = "\xEF\xBF\xBD";

std::string decode(const std::string& decoder, const std::vector<std::string>& tokens,
                   ByteRuns runs = ByteRuns::kWhole) {
  const json::Json node = json::parse(decoder, "t");
  const DecoderChain chain = parse_decoder(node.is_null() ? nullptr : &node, "t");
  DecodeRun run(chain, runs);
  for (const std::string& token : tokens) run.push(token);
  run.finish();
  return run.take();
}

TEST(Decoder, WithoutOneTokensAreJoinedBySpaces) {
  EXPECT_EQ(decode("null", {"a", "", "b"}), "a  b");
}

TEST(Decoder, ByteFallbackJudgesARunAsAWhole) {
  const std::string decoder = R"({"type": "ByteFallback"})";
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8f>", "<0xAB>", "a"}),
            "\xE5\x8F\xAB"
            "a");
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8F>", "a"}), kUnknown + kUnknown + "a");
  EXPECT_EQ(decode(decoder, {"<0x61>", "<0xFF>"}), kUnknown + kUnknown);
  EXPECT_EQ(decode(decoder, {"<0xG1>", "<0x612>"}), "<0xG1><0x612>");
}

TEST(Decoder, AStreamOfByteFallbackLetsCompleteCharactersGo) {
  const std::string decoder = R"({"type": "ByteFallback"})";
  EXPECT_EQ(decode(decoder, {"<0x61>", "<0xFF>"}, ByteRuns::kStream), "a" + kUnknown);
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8F>"}, ByteRuns::kStream), kUnknown + kUnknown);
}

TEST(Decoder, StripCountsPerTokenBeforeFuseAndOnceAfter) {
  const std::string strip = R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})";
  EXPECT_EQ(decode(strip, {" a", "  b"}), "a b");
  EXPECT_EQ(decode(R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, )" + strip + "]}",
                   {" ", " a", " b"}),
            " a b");
}

TEST(Decoder, StripAtTheEndWaitsForTheEnd) {
  const std::string decoder =
      R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Strip", "content": "x", "start": 0, "stop": 2}]})";
  EXPECT_EQ(decode(decoder, {"ax", "x", "x"}), "ax");
  EXPECT_EQ(decode(decoder, {"ax", "xx", "b"}), "axxxb");
  EXPECT_EQ(decode(decoder, {"x"}), "");
}

TEST(Decoder, ReplaceBehindFuseSeesTheWholeText) {
  const std::string replace = R"({"type": "Replace", "pattern": {"String": "ab"}, "content": "-"})";
  EXPECT_EQ(decode(replace, {"a", "b", "ab"}), "ab-");
  EXPECT_EQ(decode(R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, )" + replace + "]}",
                   {"a", "b", "ab"}, ByteRuns::kStream),
            "--");
}

TEST(Decoder, MetaspaceDropsThePrefixOfTheFirstTokenOnly) {
  const std::string always =
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true})";
  EXPECT_EQ(decode(always, {"_a", "_b"}), "a b");
  const std::string never =
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": true})";
  EXPECT_EQ(decode(never, {"_a", "_b"}), " a b");
}

TEST(Decoder, ByteLevelTakesForeignTokensAsTheyAre) {
  const std::string decoder = R"({"type": "ByteLevel"})";
  // U+0120 is the alphabet's space; a token with a real space is not of the alphabet.
  EXPECT_EQ(decode(decoder, {"a\xC4\xA0", "a b"}), "a a b");
}

}  // namespace
}  // namespace moe::model::tokenizer_detail
