#include "lib/routing/torch_file.hpp"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/routing/zip_file.hpp"

namespace moe::routing {
namespace {

// The part of a member's name below the archive's own folder: "archive/data/0" -> "data/0".
std::string_view below_folder(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

}  // namespace

TorchFile::TorchFile(std::shared_ptr<const FileMap> map) : map_(std::move(map)) {
  const std::string path = where();
  std::optional<std::span<const std::byte>> pickle;
  for (const ZipMember& member : read_zip(map_->bytes(), path)) {
    const std::string_view name = below_folder(member.name);
    if (name == "data.pkl") pickle = member.bytes;
    if (name.starts_with("data/")) storages_.emplace(name.substr(5), member.bytes);
    if (name != "byteorder") continue;
    const std::string_view order(reinterpret_cast<const char*>(member.bytes.data()),
                                 member.bytes.size());
    if (order != "little") {
      throw Error(ErrorCode::kInput,
                  path + ": expected byte order little, found " + printable(order));
    }
  }
  if (!pickle.has_value()) {
    throw Error(ErrorCode::kInput, path + ": expected a torch archive, found no data.pkl in it");
  }
  document_ = read_pickle(*pickle, path + ": data.pkl");
}

ArrayView TorchFile::view(const PickleTensor& tensor) const {
  const std::string place =
      fmt::format("{}: tensor in data/{}", where(), printable(tensor.storage));
  const auto found = storages_.find(tensor.storage);
  if (found == storages_.end()) throw Error(ErrorCode::kInput, place + ": the member is missing");
  ArrayView view;
  view.name = tensor.storage;
  view.type = tensor.type;
  view.shape = tensor.shape;
  view.strides = tensor.strides;
  const auto reach = reached_bytes(view.type, view.shape, view.strides);
  const auto available = static_cast<std::int64_t>(found->second.size());
  const std::int64_t begin_limit = available / element_bytes(view.type);
  if (!reach.has_value() || tensor.offset > begin_limit ||
      *reach > available - tensor.offset * element_bytes(view.type)) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: shape {} from element {} does not fit its {} bytes", place,
                            view.shape_text(), tensor.offset, available));
  }
  view.bytes =
      found->second.subspan(static_cast<std::size_t>(tensor.offset * element_bytes(view.type)));
  return view;
}

}  // namespace moe::routing
