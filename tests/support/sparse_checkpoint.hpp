#pragma once

// A checkpoint of any size that takes no room: true headers, and holes where the weights would be.

#include <cstdint>
#include <filesystem>

namespace moe::test {

struct SparseCheckpoint {
  std::int64_t num_tensors = 0;
  std::int64_t num_shards = 0;
  std::int64_t file_bytes = 0;  // as the files claim; the disk holds the headers only
};

// Writes DIRECTORY (created) with the config, shards of about 5 GB and their index, in the
// published layout. All weights are zero.
SparseCheckpoint write_sparse_checkpoint(const std::filesystem::path& config_file,
                                         const std::filesystem::path& directory);

}  // namespace moe::test
