#include "lib/model/tensor_files.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/shard_index.hpp"
#include "lib/model/text_file.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

bool is_inside(const fs::path& path, const fs::path& directory) {
  const auto [end, unused] =
      std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return end == directory.end();
}

std::vector<std::string> file_names(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) fail_input(directory.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// The weight files of a directory without an index: model*.safetensors, as the published ones are
// called; failing that every .safetensors file that is not known to hold something else.
std::vector<std::string> weight_file_names(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors") || name.starts_with(".")) continue;
    if (name.starts_with("model")) {
      models.push_back(name);
    } else if (name != "golden.safetensors" && !name.starts_with("routing") &&
               !name.starts_with("adapter")) {
      others.push_back(name);
    }
  }
  return models.empty() ? others : models;
}

// Names like model-00002-of-00005.safetensors: every one of the five must be there.
void check_shard_numbers(const fs::path& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::size_t of = name.find("-of-");
    if (of == std::string::npos || of < 6) continue;
    int count = 0;
    const char* first = name.data() + of + 4;
    const auto [end, error] = std::from_chars(first, name.data() + name.size(), count);
    if (error != std::errc{} || end == first || count < 1 || count > 99999) continue;
    for (int number = 1; number <= count; ++number) {
      std::string expected = name;
      expected.replace(of - 5, 5, fmt::format("{:05}", number));
      if (!std::ranges::binary_search(names, expected)) {
        fail_input((directory / expected).string(), "the shard is missing (download it again)");
      }
    }
  }
}

// Names files of other formats and what to do about them; returns when there are none.
void refuse_foreign_files(const fs::path& directory, const std::vector<std::string>& names) {
  const auto first_with = [&](std::initializer_list<std::string_view> endings) -> std::string {
    for (const std::string& name : names) {
      for (const std::string_view ending : endings) {
        if (name.ends_with(ending)) return name;
      }
    }
    return {};
  };
  if (const auto name = first_with({".bin", ".pt", ".pth", ".ckpt", ".pkl"}); !name.empty()) {
    fail_input((directory / name).string(),
               "a pickle can run code and is never opened; convert the checkpoint to safetensors "
               "(model.save_pretrained(DIR, safe_serialization=True))");
  }
  if (const auto name = first_with({".h5", ".npz", ".msgpack", ".onnx"}); !name.empty()) {
    fail_input((directory / name).string(), "this format is not read; expected .safetensors files");
  }
}

void require_directory(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return;
  fail_input(directory.string(), fs::exists(directory, error) ? "expected a checkpoint directory"
                                                              : "no such directory");
}

// The name of the first part, when all files are parts of one model.
std::optional<std::string> first_gguf_part(const std::vector<std::string>& names) {
  std::optional<GgufPartName> model;
  for (const std::string& name : names) {
    const auto part = GgufPartName::parse(name);
    if (!part) return std::nullopt;
    if (!model) model = part;
    if (part->prefix != model->prefix || part->count != model->count) return std::nullopt;
  }
  return model->of_part(1);
}

}  // namespace

std::optional<fs::path> checkpoint_file(const fs::path& directory, const std::string& name) {
  if (!is_plain_file_name(name)) {
    fail_input(directory.string(), fmt::format("\"{}\" is not a plain file name", printable(name)));
  }
  const fs::path path = directory / name;
  std::error_code error;
  const fs::file_status link = fs::symlink_status(path, error);
  if (link.type() == fs::file_type::not_found) return std::nullopt;
  if (error) fail_input(path.string(), error.message());
  if (link.type() == fs::file_type::symlink) {
    const fs::path target = fs::canonical(path, error);
    if (error)
      fail_input(path.string(),
                 fmt::format("a symbolic link that leads nowhere: {}", error.message()));
    const fs::path root = fs::canonical(directory, error);
    if (error) fail_input(directory.string(), error.message());
    const bool is_snapshot = root.parent_path().filename() == "snapshots";
    const fs::path blobs = root.parent_path().parent_path() / "blobs";
    if (!is_inside(target, root) && !(is_snapshot && is_inside(target, blobs))) {
      fail_input(path.string(),
                 fmt::format("a symbolic link to {}, outside the checkpoint directory and "
                             "its cache; copy the file into the directory",
                             printable(target.string())));
    }
  }
  if (!fs::is_regular_file(path, error)) fail_input(path.string(), "expected a regular file");
  return path;
}

std::optional<fs::path> find_gguf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (path.extension() == ".gguf" && fs::exists(path, error)) return path;
    return std::nullopt;
  }
  const std::vector<std::string> names = file_names(path);
  if (!weight_file_names(names).empty() || std::ranges::binary_search(names, kIndexName)) {
    return std::nullopt;
  }
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(".gguf") && !name.starts_with(".")) found.push_back(name);
  }
  if (found.empty()) return std::nullopt;
  if (const auto first = first_gguf_part(found)) {
    if (auto file = checkpoint_file(path, *first)) return file;
    fail_input(path.string(), fmt::format("part 1 is missing: {}", printable(*first)));
  }
  if (found.size() > 1) {
    fail_input(path.string(), fmt::format("holds {} GGUF files; give one of them ({})",
                                          found.size(), (path / found.front()).string()));
  }
  return checkpoint_file(path, found.front());
}

void refuse_without_config(const fs::path& directory) {
  require_directory(directory);
  const std::vector<std::string> names = file_names(directory);
  if (weight_file_names(names).empty()) refuse_foreign_files(directory, names);
  fail_input(directory.string(),
             "there is no config.json; expected a checkpoint directory with config.json "
             "and .safetensors files");
}

TensorFiles::TensorFiles(const fs::path& directory) : directory_(directory) {
  require_directory(directory);
  const std::vector<std::string> names = file_names(directory);
  if (const auto index_path = checkpoint_file(directory, std::string(kIndexName))) {
    open_indexed(*index_path);
    return;
  }
  const std::vector<std::string> weights = weight_file_names(names);
  if (weights.empty()) {
    refuse_foreign_files(directory, names);
    fail_input(
        directory.string(),
        fmt::format("no weights: expected model.safetensors, or shards with {}", kIndexName));
  }
  open_unindexed(weights);
}

const SafetensorsFile& TensorFiles::add_file(const std::string& name) {
  const auto path = checkpoint_file(directory_, name);
  if (!path) {
    fail_input((directory_ / name).string(), "the shard is missing (download it again)");
  }
  // References to names stay valid: a SafetensorsFile keeps its header behind a pointer.
  return files_.emplace_back(*path);
}

void TensorFiles::open_unindexed(const std::vector<std::string>& names) {
  check_shard_numbers(directory_, names);
  for (std::size_t number = 0; number < names.size(); ++number) {
    const SafetensorsFile& file = add_file(names[number]);
    for (std::size_t entry = 0; entry < file.entries().size(); ++entry) {
      const std::string_view tensor = file.entries()[entry].name;
      const auto [known, is_new] = index_.insert(tensor, Location{number, entry}.value());
      if (!is_new) {
        fail_input(file.path().string(),
                   fmt::format("tensor \"{}\" is also in {}", printable(tensor),
                               files_[Location::of(known).file].path().filename().string()));
      }
    }
  }
}

void TensorFiles::open_indexed(const fs::path& index_path) {
  const FileMap map(index_path);
  const std::string where = index_path.string();
  ShardIndex index = parse_shard_index(text_of(map), where);
  if (std::ranges::find(index.shards, kSingleFileName) == index.shards.end() &&
      fs::exists(fs::symlink_status(directory_ / kSingleFileName))) {
    fail_input(
        (directory_ / kSingleFileName).string(),
        fmt::format("both this file and {} exist, and the index does not name it; remove the one "
                    "that is not meant",
                    kIndexName));
  }
  // The index's own map of names becomes ours: where it held the shard, it gets the entry as well.
  index_ = std::move(index.shard_of);
  index_names_ = std::move(index.names);
  std::size_t num_found = 0;
  std::int64_t tensor_bytes_sum = 0;
  for (std::size_t shard = 0; shard < index.shards.size(); ++shard) {
    const SafetensorsFile& file = add_file(index.shards[shard]);
    for (std::size_t entry = 0; entry < file.entries().size(); ++entry) {
      const TensorEntry& tensor = file.entries()[entry];
      tensor_bytes_sum += tensor.end - tensor.begin;
      std::uint64_t* listed = index_.find_value(tensor.name);
      if (listed == nullptr) {
        fail_input(file.path().string(),
                   fmt::format("tensor \"{}\" is not in {}", printable(tensor.name), kIndexName));
      }
      if ((*listed & kFound) != 0) {
        fail_input(file.path().string(),
                   fmt::format("tensor \"{}\" is also in {}", printable(tensor.name),
                               files_[Location::of(*listed).file].path().filename().string()));
      }
      if (*listed != shard) {
        fail_input(where,
                   fmt::format("tensor \"{}\" is in {}, not in {} as the index says",
                               printable(tensor.name), index.shards[shard], index.shards[*listed]));
      }
      *listed = kFound | Location{shard, entry}.value();
      ++num_found;
    }
  }
  if (num_found != index_.size()) {
    index_.for_each([&](std::string_view tensor, std::uint64_t value) {
      if ((value & kFound) == 0) {
        fail_input(where, fmt::format("tensor \"{}\" is not in {} as the index says",
                                      printable(tensor), index.shards[value]));
      }
    });
  }
  if (index.total_size >= 0 && index.total_size != tensor_bytes_sum) {
    warnings_.push_back(fmt::format("{}: metadata.total_size is {}, the tensors have {} bytes",
                                    kIndexName, index.total_size, tensor_bytes_sum));
  }
}

std::optional<TensorRef> TensorFiles::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (!found) return std::nullopt;
  const Location at = Location::of(*found);
  return files_[at.file].ref(files_[at.file].entries()[at.entry]);
}

const SafetensorsFile& TensorFiles::file_of(std::string_view name) const {
  const auto found = index_.find(name);
  MOE_CHECK(found.has_value());
  return files_[Location::of(*found).file];
}

std::int64_t TensorFiles::file_bytes() const {
  std::int64_t sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.size_bytes();
  return sum;
}

void TensorFiles::check_unchanged() const {
  for (const SafetensorsFile& file : files_) {
    if (file.map().changed_on_disk()) {
      fail_input(file.path().string(), "the file changed while it was in use");
    }
  }
}

}  // namespace moe::model
