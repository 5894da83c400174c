#pragma once

// A mapped GGUF file: typed reads of its keys, and its tensors by name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/file_map.hpp"
#include "lib/model/gguf_header.hpp"

namespace moe::model {

// Reads of keys check the type that the file gives; every failure throws Error(kInput) naming file
// and key.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  // Of bytes in memory, which must stay; `name` is used in messages.
  GgufFile(std::span<const std::byte> bytes, std::filesystem::path name);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const FileMap& map() const { return map_; }  // empty for bytes in memory
  [[nodiscard]] std::int64_t size_bytes() const { return std::ssize(bytes_); }
  [[nodiscard]] const GgufHeader& header() const { return header_; }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

  [[nodiscard]] bool has(std::string_view key) const { return value(key) != nullptr; }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  // Arrays. Views into the mapped file.
  [[nodiscard]] std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<double>> numbers(std::string_view key) const;

  [[nodiscard]] const GgufTensor* find(std::string_view name) const;
  [[nodiscard]] std::span<const std::byte> bytes(const GgufTensor& tensor) const;

 private:
  [[nodiscard]] const GgufValue* value(std::string_view key) const;

  void make_index();

  FileMap map_;
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  GgufHeader header_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into header_
};

}  // namespace moe::model
