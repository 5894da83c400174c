#pragma once

// A file of torch.save: a zip archive of a pickle stream and the raw numbers of its tensors.

#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "lib/base/file_map.hpp"
#include "lib/routing/array_view.hpp"
#include "lib/routing/pickle.hpp"

namespace moe::routing {

class TorchFile {
 public:
  // Throws Error(kInput) when the file is no such archive or holds anything but plain data.
  explicit TorchFile(std::shared_ptr<const FileMap> map);

  [[nodiscard]] const PickleDocument& document() const { return document_; }
  [[nodiscard]] const std::shared_ptr<const FileMap>& map() const { return map_; }
  [[nodiscard]] std::string where() const { return map_->path().string(); }
  // The numbers of a tensor. Throws Error(kInput) when they are not all in the file.
  [[nodiscard]] ArrayView view(const PickleTensor& tensor) const;

 private:
  std::shared_ptr<const FileMap> map_;
  PickleDocument document_;
  std::unordered_map<std::string, std::span<const std::byte>> storages_;
};

}  // namespace moe::routing
