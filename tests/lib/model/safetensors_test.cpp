// The rules of the safetensors format, one by one, and the writer against the reader.

#include "lib/model/safetensors.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

using ::testing::HasSubstr;

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + std::string(rest);
}

std::string file_of(std::string_view header, std::size_t data_bytes = 0) {
  return with_length(header.size(), header) + std::string(data_bytes, '\x01');
}

SafetensorsHeader parse_header(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

std::string header_refusal(const std::string& file) {
  try {
    (void)parse_header(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("x.safetensors"));
    return error.what();
  }
  return "accepted";
}

std::string object(std::string_view members) {
  return fmt::format("{{{}}}", members);
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST(SafetensorsHeader, EmptyFilesAndLengthsAreChecked) {
  EXPECT_THAT(header_refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(header_refusal("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(header_refusal(with_length(1, "")), HasSubstr("truncated"));
  EXPECT_THAT(header_refusal(with_length(0xffffffff0000003cULL, "{}")), HasSubstr("limit"));
  EXPECT_THAT(header_refusal(with_length(100'000'001, "{}")), HasSubstr("limit"));
  EXPECT_THAT(header_refusal(with_length(100'000'000, "{}")), HasSubstr("truncated"));
  EXPECT_THAT(header_refusal(with_length(0, "")), HasSubstr("begin with"));
}

TEST(SafetensorsHeader, WhitespaceAroundTheObjectIsAllowed) {
  EXPECT_TRUE(parse_header(file_of("{}")).tensors.empty());
  EXPECT_TRUE(parse_header(file_of(" \t\r\n{} \n\t ")).tensors.empty());
}

TEST(SafetensorsHeader, OnlyJsonObjectsPass) {
  for (const char* header : {"\xff", "{", "[]", "{}x", "\"{}\"", "null", "1", "{} {}", "{\"a\":1}",
                             "{\"a\":[]}", "{\"a\":{}}", "{\"a\":null}"}) {
    SCOPED_TRACE(header);
    EXPECT_NE(header_refusal(file_of(header)), "accepted");
  }
  EXPECT_NE(header_refusal(file_of(std::string_view("{}\0garbage", 10))), "accepted");
  EXPECT_NE(header_refusal(file_of("\xef\xbb\xbf{}")), "accepted");
  EXPECT_NE(header_refusal(file_of("{\"\xc3\x28\":{}}")), "accepted");
}

TEST(SafetensorsHeader, ScalarsAndEmptyTensorsAreTensors) {
  const auto header = parse_header(file_of(
      object(tensor("s", "F32", "[]", "[0,4]") + "," + tensor("e", "F32", "[2,0]", "[4,4]")), 4));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].shape.rank(), 0u);
  EXPECT_EQ(header.tensors[1].shape, Shape({2, 0}));
}

TEST(SafetensorsHeader, SizesAreCheckedWithoutOverflow) {
  EXPECT_THAT(header_refusal(file_of(object(tensor("t", "F32", "[2,2]", "[0,4]")), 4)),
              HasSubstr("\"t\": shape [2, 2]"));
  for (const char* shape : {"[2,18446744073709551614]", "[2,9223372036854775807]",
                            "[4294967296,4294967296]", "[9223372036854775807]", "[-1]", "[1.0]",
                            "[\"1\"]", "[[1]]", "[1e3]", "[1,1,1,1,1,1,1,1,1]", "1", "{}"}) {
    SCOPED_TRACE(shape);
    EXPECT_THAT(header_refusal(file_of(object(tensor("t", "F32", shape, "[0,4]")), 4)),
                HasSubstr("\"t\""));
  }
  EXPECT_THAT(header_refusal(file_of(object(tensor("t", "F4", "[3]", "[0,1]")), 1)),
              HasSubstr("whole number of bytes"));
  EXPECT_EQ(header_refusal(file_of(object(tensor("t", "F4", "[4]", "[0,2]")), 2)), "accepted");
}

TEST(SafetensorsHeader, OffsetsCoverTheDataExactly) {
  const auto two = [](std::string_view first, std::string_view second, std::size_t bytes) {
    return header_refusal(file_of(
        object(tensor("a", "U8", "[4]", first) + "," + tensor("b", "U8", "[4]", second)), bytes));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "accepted");
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,4]", "[2,6]", 6), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,4]", "[5,9]", 9), HasSubstr("hole"));
  EXPECT_THAT(two("[1,5]", "[5,9]", 9), HasSubstr("hole"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 9), HasSubstr("1 bytes follow"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 6), HasSubstr("truncated"));
  EXPECT_THAT(two("[0,4]", "[8,4]", 8), HasSubstr("before they begin"));
  EXPECT_THAT(two("[0,4]", "[4]", 8), HasSubstr("two numbers"));
  EXPECT_THAT(two("[0,4]", "[4,8,12]", 8), HasSubstr("two numbers"));
  EXPECT_THAT(two("[0,4]", "[-4,0]", 8), HasSubstr("negative"));
}

TEST(SafetensorsHeader, NothingIsThereTwiceOrUnknown) {
  const std::string entry = tensor("t", "U8", "[1]", "[0,1]");
  EXPECT_THAT(header_refusal(file_of(object(entry + "," + entry), 1)), HasSubstr("twice"));
  EXPECT_THAT(header_refusal(file_of(
                  R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("twice"));
  EXPECT_THAT(header_refusal(file_of(R"({"t":{"dtype":"U8","shape":[1]}})", 1)),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(header_refusal(
                  file_of(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1)),
              HasSubstr("more"));
  EXPECT_THAT(header_refusal(file_of(object(tensor("t", "BF17", "[1]", "[0,1]")), 1)),
              HasSubstr("BF17"));
  EXPECT_THAT(
      header_refusal(file_of(object(tensor(std::string(5000, 'n'), "U8", "[1]", "[0,1]")), 1)),
      HasSubstr("4096"));
}

TEST(SafetensorsHeader, MetadataIsTextToText) {
  EXPECT_EQ(parse_header(file_of(R"({"__metadata__":{"a":"b","c":""}})")).metadata.size(), 2u);
  EXPECT_THAT(header_refusal(file_of(R"({"__metadata__":{"a":1}})")), HasSubstr("__metadata__"));
  EXPECT_THAT(header_refusal(file_of(R"({"__metadata__":{"a":{}}})")), HasSubstr("__metadata__"));
  EXPECT_THAT(header_refusal(file_of(R"({"__metadata__":{"a":"b","a":"b"}})")), HasSubstr("twice"));
}

TEST(SafetensorsHeader, DeepNestingStopsAtOnce) {
  EXPECT_NE(header_refusal(file_of(fmt::format(R"({{"t":{})", std::string(100'000, '[')))),
            "accepted");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += R"("t":{)";
  EXPECT_NE(header_refusal(file_of(objects)), "accepted");
}

TEST(SafetensorsHeader, OtherFormatsAreNamed) {
  EXPECT_THAT(header_refusal("PK\x03\x04 and more bytes"), HasSubstr("zip"));
  EXPECT_THAT(header_refusal("\x80\x02}q\x00 and more"), HasSubstr("pickle"));
  EXPECT_THAT(header_refusal("GGUF\x03 and more bytes"), HasSubstr("GGUF"));
  EXPECT_THAT(header_refusal("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("git lfs pull"));
}

// Some lengths begin like the magic bytes of other formats.
TEST(SafetensorsHeader, LengthsThatLookLikeAnotherFormatAreLengths) {
  for (const std::size_t length : {0x280u, 0x380u, 0x480u, 0x580u}) {
    EXPECT_TRUE(parse_header(file_of(fmt::format("{{}}{:{}}", "", length - 2))).tensors.empty());
  }
}

TEST(SafetensorsHeader, ControlCharactersOfNamesAreEscaped) {
  const std::string message = header_refusal(
      file_of(R"({"a\nb\u001b":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", 2));
  EXPECT_THAT(message, HasSubstr("a\\x0ab\\x1b"));
}

TEST(SafetensorsWriter, WhatItWritesIsReadBack) {
  const test::TempDir directory;
  const auto path = directory / "t.safetensors";
  const std::vector<TensorDeclaration> tensors = {{"wide \"quoted\" \xc3\xa9", Dtype::kF32, {2, 3}},
                                                  {"empty", Dtype::kI32, {0}},
                                                  {"bytes", Dtype::kU8, {3}}};
  SafetensorsWriter writer(path, tensors, {{"key", "value \"x\""}});
  const std::vector<float> wide = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint8_t> bytes = {7, 8, 9};
  writer.write(std::as_bytes(std::span(wide)));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.write(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(writer.remaining_bytes(), 0);
  writer.finish();

  const SafetensorsFile file(path);
  EXPECT_EQ(to_f32(file.at("wide \"quoted\" \xc3\xa9")), wide);
  EXPECT_THAT(to_i32(file.at("bytes")), ::testing::ElementsAre(7, 8, 9));
  EXPECT_THAT(to_i32(file.at("empty")), ::testing::IsEmpty());
  EXPECT_EQ(file.metadata("key"), "value \"x\"");
  EXPECT_EQ(file.metadata("other"), std::nullopt);
  const std::string text = test::read_file(path);
  EXPECT_EQ(static_cast<unsigned char>(text[0]) % 8, 0);  // the header ends at a multiple of 8
  EXPECT_THROW((void)file.at("missing"), Error);
  EXPECT_THROW((void)to_i32(file.at("wide \"quoted\" \xc3\xa9")), Error);
}

TEST(SafetensorsWriter, NothingStaysWithoutFinish) {
  const test::TempDir directory;
  {
    SafetensorsWriter writer(directory / "t.safetensors", {{"t", Dtype::kU8, {8}}});
    writer.write(std::as_bytes(std::span("abc", 3)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace moe::model
