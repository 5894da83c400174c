#pragma once

// Files that hold arrays of numbers: .npy, .npz (stored, not compressed) and safetensors. Only the
// headers are read; the arrays stay in the mapped file. Every size is checked against the file.

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/file_map.hpp"
#include "lib/routing/array_view.hpp"

namespace moe::routing {

struct ArrayFile {
  std::shared_ptr<const FileMap> map;
  std::vector<ArrayView> arrays;  // in the order of the file
  std::vector<std::pair<std::string, std::string>> metadata;

  [[nodiscard]] const ArrayView* find(const std::string& name) const;     // nullptr when not there
  [[nodiscard]] std::string metadata_text(const std::string& key) const;  // empty when not there
};

// One .npy document; `where` names it in messages. Throws Error(kInput).
[[nodiscard]] ArrayView parse_npy(std::span<const std::byte> bytes, const std::string& where);

[[nodiscard]] ArrayFile open_npy(std::shared_ptr<const FileMap> map);
[[nodiscard]] ArrayFile open_npz(std::shared_ptr<const FileMap> map);
[[nodiscard]] ArrayFile open_safetensors(std::shared_ptr<const FileMap> map);

}  // namespace moe::routing
