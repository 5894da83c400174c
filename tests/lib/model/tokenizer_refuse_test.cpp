// Files that must be refused with a message that names what is wrong.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/model/tokenizer.hpp"

namespace moe::model {
namespace {

using Json = nlohmann::json;

std::filesystem::path data_folder() {
  return std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/tokenizers";
}

std::string message_of(const std::string& tokenizer_json) {
  try {
    static_cast<void>(Tokenizer::parse(tokenizer_json, "t.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "accepted";
}

class TokenizerRefuse : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerRefuse, NamesWhatIsWrong) {
  const auto folder = data_folder() / "refuse" / GetParam();
  const Json expected = Json::parse(std::ifstream(folder / "expected.json"));
  try {
    static_cast<void>(Tokenizer::load(folder / "tokenizer.json"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    for (const Json& part : expected["must_mention"]) {
      EXPECT_NE(message.find(part.get<std::string>()), std::string::npos) << message;
    }
  }
}

std::vector<std::string> names_to_refuse() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder() / "refuse")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerRefuse, testing::ValuesIn(names_to_refuse()),
                         [](const testing::TestParamInfo<std::string>& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TokenizerBad, GarbageIsNotJson) {
  try {
    static_cast<void>(Tokenizer::load(data_folder() / "bad/garbage/tokenizer.json"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos);
  }
}

TEST(TokenizerBad, AHoleInTheIdsIsAWarningThatNamesIt) {
  const auto tokenizer = Tokenizer::load(data_folder() / "bad/hole/tokenizer.json");
  ASSERT_EQ(tokenizer.warnings().size(), 1U);
  EXPECT_NE(tokenizer.warnings()[0].find("no token has id 300"), std::string::npos);
  EXPECT_FALSE(tokenizer.id_to_token(300).has_value());
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{300}, false), "");
}

TEST(TokenizerBad, AnIdBeyondTheModelIsRefusedByTheCheck) {
  const auto tokenizer = Tokenizer::load(data_folder() / "bad/id-beyond-model/tokenizer.json");
  EXPECT_EQ(tokenizer.max_id(), 320);
  EXPECT_NO_THROW(check_against_model(tokenizer, 321, "config.json: vocab_size"));
  try {
    check_against_model(tokenizer, 320, "config.json: vocab_size");
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("id 320"), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    EXPECT_NE(message.find("config.json: vocab_size"), std::string::npos) << message;
  }
}

TEST(TokenizerBad, AMergeWithoutItsPartsIsRefused) {
  try {
    static_cast<void>(Tokenizer::load(data_folder() / "bad/merge-unresolvable/tokenizer.json"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"zz\""), std::string::npos) << message;
    EXPECT_NE(message.find("\"qq\""), std::string::npos) << message;
  }
}

constexpr const char* kModel =
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []})";

std::string with(const std::string& fields) {
  return "{" + fields + ", " + kModel + "}";
}

TEST(TokenizerRefusal, SaysWhereInTheFile) {
  EXPECT_EQ(
      message_of(with(R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, 3]})")),
      "t.json: decoder.decoders[1]: expected an object, found number");
  EXPECT_EQ(message_of(with(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                                "invert": 0, "pattern": {"String": "x"}})")),
            "t.json: pre_tokenizer.invert: expected true or false, found number");
  EXPECT_EQ(message_of(with(R"("normalizer": {"prepend": "x"})")),
            "t.json: normalizer: field \"type\" is missing");
  EXPECT_EQ(message_of("[]"), "t.json: expected an object, found array");
  EXPECT_EQ(message_of("{}"), "t.json: field \"model\" is missing");
}

TEST(TokenizerRefusal, OfAddedTokensThatContradictTheVocabulary) {
  EXPECT_EQ(message_of(with(R"("added_tokens": [{"id": 1, "content": "<s>"}])")),
            "t.json: added_tokens[0]: tokens \"b\" and \"<s>\" both have id 1");
  EXPECT_EQ(message_of(with(R"("added_tokens": [{"id": 2, "content": "x"},
                                                {"id": 3, "content": "x"}])")),
            "t.json: added_tokens[1]: added token \"x\" has ids 2 and 3");
  EXPECT_NE(message_of(with(R"("added_tokens": [{"content": "x"}])")).find("no integer id"),
            std::string::npos);
}

TEST(TokenizerRefusal, OfAddedTokensOfWhichTheNormalizerLeavesNothing) {
  const auto tokenizer = [](const std::string& normalized) {
    return with(R"("normalizer": {"type": "Strip", "strip_left": true, "strip_right": true},
                   "added_tokens": [{"id": 2, "content": "\n\n", "normalized": )" +
                normalized + "}]");
  };
  EXPECT_EQ(
      message_of(tokenizer("true")),
      "t.json: added_tokens[0]: the normalizer leaves nothing of added token \"\\x0a\\x0a\"; it "
      "needs \"normalized\": false");
  EXPECT_EQ(message_of(tokenizer("false")), "accepted");
}

TEST(TokenizerRefusal, OfAnUnknownVersion) {
  EXPECT_NE(message_of(with(R"("version": "2.0")")).find("\"2.0\" is not known"),
            std::string::npos);
}

TEST(TokenizerRefusal, OfMetaspaceThatContradictsItself) {
  EXPECT_NE(message_of(with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_",
                                "add_prefix_space": false, "prepend_scheme": "always"})"))
                .find("contradicts"),
            std::string::npos);
}

TEST(TokenizerRefusal, OfANormalizerThatGrowsWithoutEnd) {
  std::string steps;
  for (int i = 0; i < 40; ++i) {
    steps += R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},)";
  }
  steps.pop_back();
  const auto tokenizer = Tokenizer::parse(
      with(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}"), "t.json");
  EXPECT_THROW(static_cast<void>(tokenizer.encode("a", false)), Error);
}

TEST(TokenizerRefusal, OfAPatternThatRunsAway) {
  const auto tokenizer = Tokenizer::parse(
      with(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated", "invert": false,
                                "pattern": {"Regex": "(a|aa)+$"}})"),
      "t.json");
  EXPECT_EQ(tokenizer.encode("aab", false), (std::vector<std::int32_t>{0, 0, 1}));
  try {
    static_cast<void>(tokenizer.encode(std::string(60, 'a') + "b", false));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_NE(std::string(error.what()).find("(a|aa)+$"), std::string::npos) << error.what();
  }
}

TEST(TokenizerRefusal, OfTextThatIsNotUtf8) {
  const auto tokenizer = Tokenizer::parse(std::string("{") + kModel + "}", "t.json");
  EXPECT_THROW(static_cast<void>(tokenizer.encode("ab\xE5\x8F", false)), Error);
}

}  // namespace
}  // namespace moe::model
