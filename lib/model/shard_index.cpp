#include "lib/model/shard_index.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/model/config_reader.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/text_file.hpp"

namespace moe::model {
namespace {

constexpr std::size_t kMaxShards = 100'000;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", where, what));
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::ranges::none_of(name, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '/' || c == '\\' || byte < 0x20 || byte == 0x7f;
  });
}

ShardIndex parse_shard_index(std::string_view json_text, const std::string& where) {
  require_json_text(json_text, where);
  const json::Json document =
      json::parse(json_text, where, {.max_bytes = kMaxHeaderBytes, .max_depth = 8});
  if (!document.is_object()) fail(where, "expected a JSON object");
  ConfigReader reader(document, where);
  const json::Json* map = reader.find("weight_map");
  if (map == nullptr || !map->is_object()) reader.fail("weight_map", "missing or not an object");
  if (std::ssize(*map) > kMaxTensorsPerFile) {
    fail(where, fmt::format("weight_map has more than {} entries", kMaxTensorsPerFile));
  }
  ShardIndex index;
  std::unordered_map<std::string, std::size_t> position;
  index.shard_of.reserve(map->size());
  for (const auto& [tensor, value] : map->get_ref<const json::Json::object_t&>()) {
    if (tensor.size() > kMaxTensorNameBytes) {
      fail(where, fmt::format("tensor \"{}\": the name is too long", printable(tensor)));
    }
    if (!value.is_string()) {
      fail(where, fmt::format("weight_map: tensor \"{}\": expected a file name, found {}",
                              printable(tensor), value.type_name()));
    }
    const auto& shard = value.get_ref<const std::string&>();
    if (!is_plain_file_name(shard)) {
      fail(where, fmt::format("weight_map: tensor \"{}\": \"{}\" is not a plain file name of this "
                              "directory",
                              printable(tensor), printable(shard)));
    }
    const auto [at, is_new] = position.try_emplace(shard, index.shards.size());
    if (is_new) {
      if (index.shards.size() == kMaxShards) fail(where, "more than 100000 shards");
      index.shards.push_back(shard);
    }
    index.shard_of.emplace(tensor, at->second);
  }
  if (index.shards.empty()) fail(where, "weight_map is empty");
  const json::Json* metadata = reader.find("metadata");
  if (metadata != nullptr && metadata->is_object()) {
    ConfigReader metadata_reader(*metadata, where, "metadata.");
    const json::Json* total = metadata_reader.find("total_size");
    if (total != nullptr && total->is_number_unsigned()) {
      index.total_size = static_cast<std::int64_t>(
          std::min(total->get<std::uint64_t>(), static_cast<std::uint64_t>(INT64_MAX)));
    }
  }
  return index;
}

}  // namespace moe::model
