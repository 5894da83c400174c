#pragma once

// A read-only memory-mapped regular file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace moe {

// Move-only. Throws Error(kInput) when the path is missing, not a regular file, or not readable. An
// empty file maps to an empty span. The bytes stay valid as long as the object lives.
class FileMap {
 public:
  FileMap() = default;
  explicit FileMap(const std::filesystem::path& path);
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::int64_t size_bytes() const { return static_cast<std::int64_t>(size_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // True when the size or the modification time on disk differs from what was mapped.
  [[nodiscard]] bool changed_on_disk() const;

  // Whether the pages around one that is touched are read with it, which is the default. Off, a few
  // scattered pages of a huge file cost what they weigh.
  void advise_read_ahead(bool is_on) const noexcept;

  // Tells the kernel that the range will not be needed soon (its pages may be dropped).
  void advise_done(std::size_t offset, std::size_t length) const noexcept;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace moe
