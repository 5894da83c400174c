#include "lib/base/atomic_file.hpp"

#include <filesystem>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t count_files(const fs::path& directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const test::TempDir dir;
  {
    AtomicFile file(dir / "report.json");
    file.write("first ");
    file.write("second");
    EXPECT_FALSE(fs::exists(dir / "report.json"));
    file.commit();
    EXPECT_EQ(test::read_file(dir / "report.json"), "first second");
  }
  EXPECT_EQ(count_files(dir.path()), 1);
}

TEST(AtomicFile, WithoutCommitNothingIsLeftAndTheOldFileStays) {
  const test::TempDir dir;
  test::write_file(dir / "report.json", "old");
  {
    AtomicFile file(dir / "report.json");
    file.write("new");
  }
  EXPECT_EQ(test::read_file(dir / "report.json"), "old");
  EXPECT_EQ(count_files(dir.path()), 1);
}

TEST(AtomicFile, TwoWritersOfOneTargetDoNotMix) {
  const test::TempDir dir;
  AtomicFile first(dir / "x");
  AtomicFile second(dir / "x");
  first.write("1111");
  second.write("22");
  first.commit();
  EXPECT_EQ(test::read_file(dir / "x"), "1111");
  second.commit();
  EXPECT_EQ(test::read_file(dir / "x"), "22");
}

TEST(AtomicFile, MissingFolderIsNamed) {
  const test::TempDir dir;
  try {
    write_file_atomically(dir / "absent" / "x.json", "{}");
    FAIL() << "wrote into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    EXPECT_NE(std::string(error.what()).find("absent/x.json"), std::string::npos);
  }
}

TEST(AtomicFile, FolderAsTargetIsRefusedAndLeavesNothing) {
  const test::TempDir dir;
  fs::create_directory(dir / "folder");
  test::write_file(dir / "folder" / "inside", "kept");
  EXPECT_THROW(write_file_atomically(dir / "folder", "{}"), Error);
  EXPECT_EQ(count_files(dir.path()), 1);
  EXPECT_EQ(test::read_file(dir / "folder" / "inside"), "kept");
}

TEST(AtomicFile, SymbolicLinkStaysALink) {
  const test::TempDir dir;
  test::write_file(dir / "real", "old");
  fs::create_symlink(dir / "real", dir / "link");
  write_file_atomically(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(test::read_file(dir / "real"), "new");
}

// Renaming a file onto /dev/null as root would replace the device for the whole machine.
TEST(AtomicFile, DeviceIsWrittenToNotReplaced) {
  write_file_atomically("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, FullDeviceIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  EXPECT_THROW(write_file_atomically("/dev/full", "does not fit"), Error);
}

}  // namespace
}  // namespace moe
