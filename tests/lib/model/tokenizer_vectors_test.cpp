// Every tokenizer of tests/data/tokenizers against the rows that the reference library gave.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/model/tokenizer.hpp"

namespace moe::model {
namespace {

using Json = nlohmann::json;

std::filesystem::path vectors_folder() {
  return std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/tokenizers";
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(vectors_folder())) {
    if (std::filesystem::exists(entry.path() / "vectors.jsonl")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Json> rows_of(const std::string& name, const std::string& kind) {
  std::ifstream file(vectors_folder() / name / "vectors.jsonl");
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) {
    Json row = Json::parse(line);
    if (row["kind"] == kind) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::int32_t> ids_of(const Json& row) {
  return row["ids"].get<std::vector<std::int32_t>>();
}

class TokenizerVectors : public testing::TestWithParam<std::string> {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::load(vectors_folder() / GetParam() / "tokenizer.json");
};

TEST_P(TokenizerVectors, EncodesAsTheReference) {
  const auto rows = rows_of(GetParam(), "encode");
  EXPECT_GT(rows.size(), 200U);
  for (const Json& row : rows) {
    EXPECT_EQ(tokenizer_.encode(row["text"].get<std::string>(), row["add_special_tokens"]),
              ids_of(row))
        << row.dump();
  }
}

TEST_P(TokenizerVectors, DecodesAsTheReference) {
  for (const char* const kind : {"encode", "decode"}) {
    for (const Json& row : rows_of(GetParam(), kind)) {
      EXPECT_EQ(tokenizer_.decode(ids_of(row), false), row["decode"]) << row.dump();
      EXPECT_EQ(tokenizer_.decode(ids_of(row), true), row["decode_skip_special"]) << row.dump();
    }
  }
}

TEST_P(TokenizerVectors, StreamsStepByStep) {
  for (const Json& row : rows_of(GetParam(), "stream")) {
    TokenStream stream(tokenizer_, row["skip_special_tokens"]);
    std::vector<std::string> steps;
    std::string all;
    for (const std::int32_t id : ids_of(row)) {
      steps.push_back(stream.push(id));
      all += steps.back();
    }
    const std::string rest = stream.flush();
    all += rest;
    if (row.contains("steps")) {
      EXPECT_EQ(steps, row["steps"].get<std::vector<std::string>>()) << row.dump();
      EXPECT_EQ(rest, row["flush"]) << row.dump();
      EXPECT_EQ(all, row["full"]) << row.dump();
    } else if (row["full"].get<std::string>().find("\xEF\xBF\xBD") == std::string::npos) {
      // A run of byte tokens that is not valid UTF-8 cannot be streamed with the result of the
      // whole.
      EXPECT_EQ(all, row["full"]) << row.dump();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVectors, testing::ValuesIn(tokenizer_names()),
                         [](const testing::TestParamInfo<std::string>& tested) {
                           std::string name = tested.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace moe::model
