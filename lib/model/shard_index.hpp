#pragma once

// model.safetensors.index.json: which shard holds which tensor.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moe::model {

struct ShardIndex {
  std::vector<std::string> shards;                        // in order of first mention
  std::unordered_map<std::string, std::size_t> shard_of;  // tensor name -> index into shards
  std::int64_t total_size = -1;  // metadata.total_size, advisory; -1 when absent
};

// Every shard name is a plain file name: no separator, no "..", no NUL, not empty. `where` names
// the index in messages. Throws Error(kInput).
[[nodiscard]] ShardIndex parse_shard_index(std::string_view json_text, const std::string& where);

// True for a name without separators, control characters, "." and "..".
[[nodiscard]] bool is_plain_file_name(std::string_view name);

}  // namespace moe::model
