#pragma once

// model.safetensors.index.json: which shard holds which tensor.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/name_map.hpp"

namespace moe::model {

struct ShardIndex {
  ShardIndex() = default;
  ShardIndex(ShardIndex&&) = default;  // a copy's keys would point into the other's names
  ShardIndex& operator=(ShardIndex&&) = default;

  std::vector<std::string> shards;  // in order of first mention
  NameMap shard_of;                 // tensor name -> index into shards; keys point into names
  std::vector<char> names;
  std::int64_t total_size = -1;  // metadata.total_size, advisory; -1 when absent
};

// Every shard name is a plain file name: no separator, no "..", no NUL, not empty. `where` names
// the index in messages. Throws Error(kInput).
[[nodiscard]] ShardIndex parse_shard_index(std::string_view json_text, const std::string& where);

// True for a name without separators, control characters, "." and "..".
[[nodiscard]] bool is_plain_file_name(std::string_view name);

}  // namespace moe::model
