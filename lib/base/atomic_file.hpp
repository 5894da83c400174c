#pragma once

// Files that are either whole or not there: written beside the target under a temporary name, then
// renamed. Through a symbolic link the file it names is replaced, not the link. A device or a pipe
// (/dev/stdout, /dev/null) cannot be whole or absent and is written to as it is.

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace moe {

// Writes in pieces; commit() makes the file appear. Without commit() the temporary file is removed.
// Throws Error(kRuntime) on any failure to write (the message names the path).
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // Empty for a device and after commit().
  std::FILE* file_ = nullptr;
};

// One call for a whole text.
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

}  // namespace moe
