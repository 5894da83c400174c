#pragma once

// What many tests need of the file system: a folder that is gone afterwards, whole files in and
// out.

#include <filesystem>
#include <string>
#include <string_view>

namespace moe::test {

// A new, empty folder, removed with everything in it at the end of its life.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The bytes of a file. Throws std::runtime_error when it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace moe::test
