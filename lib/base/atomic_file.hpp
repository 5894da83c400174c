#pragma once

// Files that are either whole or not there: written beside the target under a temporary name, then
// renamed.

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
  std::filesystem::path temporary_;
  std::FILE* file_ = nullptr;
};

// One call for a whole text.
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

}  // namespace moe
