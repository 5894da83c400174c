// Which files of a directory are the weights, and which may be opened.

#include "lib/model/tensor_files.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "lib/model/shard_index.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void write_shard(const fs::path& path, const std::vector<std::string>& names) {
  std::vector<TensorDeclaration> tensors;
  for (const std::string& name : names) tensors.push_back({name, Dtype::kU8, {2}});
  SafetensorsWriter writer(path, tensors);
  const std::string data(2 * names.size(), 'x');
  writer.write(std::as_bytes(std::span(data)));
  writer.finish();
}

std::string refusal(const fs::path& directory) {
  try {
    const TensorFiles files(directory);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(TensorFiles, OneFile) {
  const test::TempDir directory;
  write_shard(directory / "model.safetensors", {"a", "b"});
  write_shard(directory / "golden.safetensors", {"logits"});
  const TensorFiles files(directory.path());
  EXPECT_EQ(files.num_tensors(), 2u);
  EXPECT_EQ(files.find("a")->bytes.size(), 2u);
  EXPECT_FALSE(files.find("logits").has_value());
}

TEST(TensorFiles, ShardsWithoutAnIndexMustBeComplete) {
  const test::TempDir directory;
  write_shard(directory / "model-00001-of-00003.safetensors", {"a"});
  write_shard(directory / "model-00003-of-00003.safetensors", {"c"});
  EXPECT_THAT(refusal(directory.path()), HasSubstr("model-00002-of-00003.safetensors"));
  write_shard(directory / "model-00002-of-00003.safetensors", {"b"});
  EXPECT_EQ(TensorFiles(directory.path()).num_tensors(), 3u);
}

TEST(TensorFiles, AnyOtherNameServesWhenThereIsNoModelFile) {
  const test::TempDir directory;
  write_shard(directory / "weights.safetensors", {"a"});
  write_shard(directory / "golden.safetensors", {"logits"});
  EXPECT_EQ(TensorFiles(directory.path()).num_tensors(), 1u);
}

TEST(TensorFiles, IndexAndSingleFileTogetherAreAmbiguous) {
  const test::TempDir directory;
  write_shard(directory / "model.safetensors", {"a"});
  write_shard(directory / "other.safetensors", {"a"});
  test::write_file(directory / "model.safetensors.index.json",
                   R"({"weight_map":{"a":"other.safetensors"}})");
  EXPECT_THAT(refusal(directory.path()), HasSubstr("both"));
  test::write_file(directory / "model.safetensors.index.json",
                   R"({"weight_map":{"a":"model.safetensors"}})");
  EXPECT_EQ(refusal(directory.path()), "accepted");
}

TEST(TensorFiles, WrongTotalSizeIsOnlyAWarning) {
  const test::TempDir directory;
  write_shard(directory / "m.safetensors", {"a"});
  test::write_file(directory / "model.safetensors.index.json",
                   R"({"metadata":{"total_size":99},"weight_map":{"a":"m.safetensors"}})");
  EXPECT_THAT(TensorFiles(directory.path()).warnings(), ::testing::ElementsAre(HasSubstr("99")));
  test::write_file(directory / "model.safetensors.index.json",
                   R"({"metadata":{},"weight_map":{"a":"m.safetensors"}})");
  EXPECT_TRUE(TensorFiles(directory.path()).warnings().empty());
}

TEST(TensorFiles, ForeignFormatsAreNamedWithAdvice) {
  const test::TempDir directory;
  EXPECT_THAT(refusal(directory.path()), HasSubstr("no weights"));
  test::write_file(directory / "pytorch_model-00001-of-00002.bin", "\x80\x02");
  EXPECT_THAT(refusal(directory.path()), HasSubstr("safetensors"));
  test::write_file(directory / "model-q4.gguf", "GGUF");
  EXPECT_EQ(find_gguf(directory.path()), directory / "model-q4.gguf");
  EXPECT_THAT(refusal(directory / "nowhere"), HasSubstr("no such directory"));
  EXPECT_THAT(refusal(directory / "model-q4.gguf"), HasSubstr("expected a checkpoint directory"));
}

TEST(TensorFiles, SymbolicLinksLeadOnlyInsideTheDirectoryOrItsCache) {
  const test::TempDir root;
  const fs::path snapshot = root / "models--x" / "snapshots" / "1234";
  const fs::path blobs = root / "models--x" / "blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  write_shard(blobs / "cafe", {"a"});
  fs::create_symlink("../../blobs/cafe", snapshot / "model.safetensors");
  EXPECT_EQ(refusal(snapshot), "accepted");

  const fs::path plain = root / "plain" / "checkpoint";
  fs::create_directories(plain);
  write_shard(root / "outside.safetensors", {"a"});
  fs::create_symlink(root / "outside.safetensors", plain / "model.safetensors");
  EXPECT_THAT(refusal(plain), HasSubstr("outside the checkpoint directory"));
  fs::remove(plain / "model.safetensors");
  write_shard(plain / "real.bin.safetensors", {"a"});
  fs::create_symlink("real.bin.safetensors", plain / "model.safetensors");
  EXPECT_EQ(refusal(plain), "accepted");
  fs::remove(plain / "model.safetensors");
  fs::create_symlink("model.safetensors", plain / "model.safetensors");  // a loop
  EXPECT_THAT(refusal(plain), HasSubstr("leads nowhere"));
  // The directory itself may be reached through a link.
  fs::create_directory_symlink(snapshot, root / "link");
  EXPECT_EQ(refusal(root / "link"), "accepted");
}

TEST(TensorFiles, ChangesOnDiskAreSeen) {
  const test::TempDir directory;
  write_shard(directory / "model.safetensors", {"a"});
  const TensorFiles files(directory.path());
  files.check_unchanged();
  fs::resize_file(directory / "model.safetensors", 1'000'000);
  EXPECT_THROW(files.check_unchanged(), Error);
}

TEST(ShardIndex, NamesArePlainFileNames) {
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "..\\x", "a\nb", "../x"}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
  }
  EXPECT_FALSE(is_plain_file_name(std::string(300, 'a')));
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
}

TEST(ShardIndex, StructureIsChecked) {
  const auto refused = [](const char* text) {
    EXPECT_THROW((void)parse_shard_index(text, "index.json"), Error) << text;
  };
  refused("");
  refused("[]");
  refused("{}");
  refused(R"({"weight_map":[]})");
  refused(R"({"weight_map":{}})");
  refused(R"({"weight_map":{"a":null}})");
  refused(R"({"weight_map":{"a":"x","a":"y"}})");
  refused(R"({"weight_map":{"a":"x"}} )"
          "\xff");
  const ShardIndex index =
      parse_shard_index(R"({"weight_map":{"a":"x","b":"y","c":"x"}})", "index.json");
  EXPECT_THAT(index.shards, ::testing::ElementsAre("x", "y"));
  EXPECT_EQ(index.shard_of.find("c"), 0u);
  EXPECT_EQ(index.total_size, -1);
}

}  // namespace
}  // namespace moe::model
