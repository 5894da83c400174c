#pragma once

// The weight files of a checkpoint directory, mapped: tensor name -> dtype, shape, bytes. One file,
// shards with an index, or shards without one.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/name_map.hpp"
#include "lib/model/safetensors.hpp"

namespace moe::model {

// DIR/NAME as a regular file that may be opened: NAME is a plain file name; a symbolic link is
// followed only when its target lies inside DIR or inside the blobs folder of the Hugging Face
// cache that DIR is a snapshot of (DIR/../../blobs). nullopt when nothing of that name exists.
// Throws Error(kInput) for anything else.
[[nodiscard]] std::optional<std::filesystem::path> checkpoint_file(
    const std::filesystem::path& directory, const std::string& name);

// The GGUF file that `path` is, or that a directory without safetensors holds. Throws Error(kInput)
// when there are several to choose from.
[[nodiscard]] std::optional<std::filesystem::path> find_gguf(const std::filesystem::path& path);

// Throws the Error(kInput) of a directory that cannot be a checkpoint because it has no
// config.json: names what is there instead (a pickle), else the missing config.json.
[[noreturn]] void refuse_without_config(const std::filesystem::path& directory);

class TensorFiles {
 public:
  // Throws Error(kInput): no such directory, no weights (naming pickles, which are not read,
  // and what to do), a missing or damaged shard, a tensor that is in two shards, in the
  // wrong shard, or in a shard but not in the index.
  explicit TensorFiles(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] std::optional<TensorRef> find(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return index_.contains(name); }
  [[nodiscard]] std::size_t num_tensors() const { return index_.size(); }
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }
  // The file that holds a tensor, for messages.
  [[nodiscard]] const SafetensorsFile& file_of(std::string_view name) const;
  [[nodiscard]] std::int64_t file_bytes() const;
  // Calls visit(const TensorRef&) for every tensor, file by file in the order of the offsets.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const SafetensorsFile& file : files_) {
      for (const TensorEntry& entry : file.entries()) visit(file.ref(entry));
    }
  }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  // Throws Error(kInput) when a file was replaced or changed since it was mapped.
  void check_unchanged() const;

 private:
  // Which entry of which file, as a value of the index: below 2^31 and 2^32. While an index is
  // being read, a name that no file has shown yet holds the number of its shard, without kFound.
  static constexpr std::uint64_t kFound = std::uint64_t{1} << 63;
  struct Location {
    std::size_t file = 0;
    std::size_t entry = 0;

    [[nodiscard]] static Location of(std::uint64_t value) {
      return {(value & ~kFound) >> 32, value & 0xffffffff};
    }
    [[nodiscard]] std::uint64_t value() const { return std::uint64_t{file} << 32 | entry; }
  };

  void open_indexed(const std::filesystem::path& index_path);
  void open_unindexed(const std::vector<std::string>& names);
  const SafetensorsFile& add_file(const std::string& name);

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  NameMap index_;  // name -> Location; keys point into the headers of files_ or index_names_
  std::vector<char> index_names_;
  std::vector<std::string> warnings_;
};

}  // namespace moe::model
