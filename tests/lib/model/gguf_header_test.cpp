// Goal: the header of a GGUF file is read right and nothing in it is believed unchecked. Method:
// two whole files that the gguf package of ggml-org wrote (scenarios/checkpoints/SOURCES.md), and
// the first of them cut at every length of its header.

#include "lib/model/gguf_header.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/model/gguf_types.hpp"

namespace moe::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kFolder = std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/gguf";

std::uint32_t as_u32(const GgufValue& value) {
  std::uint32_t number = 0;
  EXPECT_EQ(value.bytes.size(), sizeof(number));
  std::memcpy(&number, value.bytes.data(), sizeof(number));
  return number;
}

const GgufTensor& find(const GgufHeader& header, const std::string& name) {
  const auto found = std::ranges::find(header.tensors, name, &GgufTensor::name);
  EXPECT_NE(found, header.tensors.end()) << name;
  return *found;
}

TEST(GgufHeader, ReadsKeysAndTensorsOfAWholeFile) {
  const FileMap file(kFolder / "mixtral-gguf-q4_0.gguf");
  const GgufHeader header = parse_gguf_header(file.bytes(), "model.gguf");
  EXPECT_EQ(header.version, 3U);
  EXPECT_EQ(header.alignment, 32);
  EXPECT_EQ(header.architecture, "llama");
  EXPECT_EQ(as_u32(header.values.at("llama.expert_count")), 5U);
  EXPECT_EQ(as_u32(header.values.at("llama.expert_used_count")), 2U);
  const GgufTensor& router = find(header, "blk.0.ffn_gate_inp.weight");
  EXPECT_EQ(router.type_id, 0U);
  EXPECT_THAT(router.dims, ElementsAre(128, 5));
  EXPECT_EQ(router.size_bytes, 128 * 5 * 4);
  EXPECT_EQ(find(header, "blk.0.ffn_gate_exps.weight").type_id, 2U);
}

TEST(GgufHeader, TensorsEndWithTheFile) {
  for (const char* name : {"mixtral-gguf-q4_0.gguf", "qwen3moe-gguf-q4_0.gguf"}) {
    const FileMap file(kFolder / name);
    const GgufHeader header = parse_gguf_header(file.bytes(), name);
    const GgufTensor& last = header.tensors.back();
    const std::int64_t end = header.data_begin + last.offset + last.size_bytes;
    EXPECT_LE(end, file.size_bytes()) << name;
    EXPECT_LT(file.size_bytes() - end, header.alignment) << name;
  }
}

TEST(GgufHeader, RefusesEveryCutOfTheFile) {
  const FileMap file(kFolder / "mixtral-gguf-q4_0.gguf");
  const GgufHeader header = parse_gguf_header(file.bytes(), "model.gguf");
  for (std::int64_t size = 0; size < header.data_begin; size += size < 200 ? 1 : 37) {
    EXPECT_THROW(static_cast<void>(parse_gguf_header(
                     file.bytes().first(static_cast<std::size_t>(size)), "model.gguf")),
                 Error)
        << size;
  }
}

TEST(GgufHeader, NamesTheTensorThatTheFileIsTooShortFor) {
  const FileMap file(kFolder / "mixtral-gguf-q4_0.gguf");
  const GgufHeader header = parse_gguf_header(file.bytes(), "model.gguf");
  const auto cut = file.bytes().first(file.bytes().size() - 4096);
  try {
    static_cast<void>(parse_gguf_header(cut, "model.gguf"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("is the file complete?"));
    EXPECT_THAT(error.what(), HasSubstr(header.tensors.back().name));
  }
}

TEST(GgufBlockType, KnowsTheSizesOfCommonTypes) {
  const auto q4_k = find_gguf_block_type(12);
  ASSERT_TRUE(q4_k.has_value());
  EXPECT_EQ(q4_k->name, "Q4_K");
  EXPECT_EQ(q4_k->block_values, 256);
  EXPECT_EQ(q4_k->block_bytes, 144);
  EXPECT_FALSE(find_gguf_block_type(4).has_value());
  EXPECT_FALSE(find_gguf_block_type(200).has_value());
}

}  // namespace
}  // namespace moe::model
