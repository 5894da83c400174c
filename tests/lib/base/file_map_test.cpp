#include "lib/base/file_map.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe {
namespace {

std::string text_of(const FileMap& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

// The message of the Error that mapping `path` throws; "" when it throws none.
std::string refusal(const std::filesystem::path& path) {
  try {
    const FileMap map(path);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
}

TEST(FileMap, ShowsTheBytesOfTheFile) {
  const test::TempDir dir;
  test::write_file(dir / "x", std::string("a\0b", 3));
  const FileMap map(dir / "x");
  EXPECT_EQ(map.size_bytes(), 3);
  EXPECT_EQ(text_of(map), std::string("a\0b", 3));
  EXPECT_EQ(map.path(), dir / "x");
}

TEST(FileMap, EmptyFileIsAnEmptySpan) {
  const test::TempDir dir;
  test::write_file(dir / "x", "");
  const FileMap map(dir / "x");
  EXPECT_EQ(map.size_bytes(), 0);
  EXPECT_TRUE(map.bytes().empty());
}

TEST(FileMap, MissingFileFolderAndPipeAreRefusedByName) {
  const test::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(dir / "absent").find("absent: No such file"), std::string::npos);
  EXPECT_NE(refusal(dir.path()).find("expected a regular file"), std::string::npos);
  // Must not block waiting for a writer.
  EXPECT_NE(refusal(dir / "pipe").find("expected a regular file"), std::string::npos);
}

TEST(FileMap, MoveKeepsTheBytesInPlace) {
  const test::TempDir dir;
  test::write_file(dir / "x", "hello");
  FileMap first(dir / "x");
  const std::byte* before = first.bytes().data();
  FileMap second(std::move(first));
  EXPECT_EQ(second.bytes().data(), before);
  FileMap third;
  third = std::move(second);
  EXPECT_EQ(text_of(third), "hello");
}

TEST(FileMap, NoticesAChangeOnDisk) {
  const test::TempDir dir;
  test::write_file(dir / "x", "hello");
  const FileMap map(dir / "x");
  EXPECT_FALSE(map.changed_on_disk());
  test::write_file(dir / "x", "hello, world");
  EXPECT_TRUE(map.changed_on_disk());
}

TEST(FileMap, NoticesThatTheFileIsGone) {
  const test::TempDir dir;
  test::write_file(dir / "x", "hello");
  const FileMap map(dir / "x");
  std::filesystem::remove(dir / "x");
  EXPECT_TRUE(map.changed_on_disk());
  EXPECT_EQ(text_of(map), "hello");
}

TEST(FileMap, AdviceDoesNotChangeWhatIsRead) {
  const test::TempDir dir;
  const std::string text(20'000, 'x');
  test::write_file(dir / "x", text);
  const FileMap map(dir / "x");
  map.advise_read_ahead(false);
  map.advise_read_ahead(true);
  map.advise_done(0, text.size());
  map.advise_done(100, 5000);
  map.advise_done(19'999, 1);
  map.advise_done(0, 1'000'000);
  EXPECT_EQ(text_of(map), text);
}

}  // namespace
}  // namespace moe
