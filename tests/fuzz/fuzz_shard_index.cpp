// A model.safetensors.index.json from arbitrary bytes: refused with an Error, or every shard is a
// plain file name.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/model/shard_index.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const moe::model::ShardIndex index = moe::model::parse_shard_index(
        std::string_view(reinterpret_cast<const char*>(data), size), "input");
    for (const std::string& shard : index.shards) {
      MOE_CHECK(moe::model::is_plain_file_name(shard));
    }
    index.shard_of.for_each(
        [&](std::string_view, std::uint64_t shard) { MOE_CHECK(shard < index.shards.size()); });
  } catch (const moe::Error& error) {
    MOE_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
