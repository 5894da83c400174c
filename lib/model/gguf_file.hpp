#pragma once

// A mapped GGUF model, in one file or in parts: typed reads of its keys, and its tensors by name.

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

// The name of part `number` (from 1) of a model in `count` files, PREFIX-00001-of-00003.gguf.
struct GgufPartName {
  std::string prefix;
  std::int64_t number = 0;
  std::int64_t count = 0;

  // nullopt for any other name of a file.
  [[nodiscard]] static std::optional<GgufPartName> parse(std::string_view file_name);
  [[nodiscard]] std::string of_part(std::int64_t part_number) const;
};

// A model in several files is one by its first part: the keys are the first part's, the tensors
// those of all parts. Reads of keys check the type that the file gives; every failure throws
// Error(kInput) naming file and key.
class GgufFile {
 public:
  // Opens the other parts beside the first, where split.count says that there are others. Refuses
  // a part that is not the first, a missing part, parts that disagree on their number, tensors
  // that are in two parts, and fewer or more tensors than split.tensors.count.
  explicit GgufFile(const std::filesystem::path& path);
  // Of bytes in memory, which must stay; `name` is used in messages, and must be that of a first
  // part where there are several.
  GgufFile(std::span<const std::byte> bytes, std::filesystem::path name);
  GgufFile(const std::vector<std::span<const std::byte>>& parts, std::filesystem::path name);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::size_t num_parts() const { return parts_.size(); }
  [[nodiscard]] const FileMap& map(std::size_t part) const;       // empty for bytes in memory
  [[nodiscard]] std::int64_t data_begin(std::size_t part) const;  // in the file of the part
  [[nodiscard]] std::int64_t size_bytes() const;                  // of all parts
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
  // nullopt for a single value, too.
  [[nodiscard]] std::optional<std::vector<bool>> booleans(std::string_view key) const;

  [[nodiscard]] const GgufTensor* find(std::string_view name) const;
  [[nodiscard]] std::span<const std::byte> bytes(const GgufTensor& tensor) const;

 private:
  [[nodiscard]] const GgufValue* value(std::string_view key) const;

  struct Part {
    FileMap map;
    std::span<const std::byte> bytes;
    std::int64_t data_begin = 0;
  };

  [[nodiscard]] std::int64_t read_first(Part part);
  void read_next(Part part, const std::string& where);
  void make_index();

  std::vector<Part> parts_;
  std::filesystem::path path_;
  GgufHeader header_;  // of the first part, with the tensors of all
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into header_
};

}  // namespace moe::model
