#pragma once

// Writes a safetensors file piece by piece: the header first, then the tensors' bytes in the
// declared order. Nothing of the size of a tensor is held in memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/atomic_file.hpp"
#include "lib/model/safetensors.hpp"

namespace moe::model {

struct TensorDeclaration {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// The file appears under its name at finish(), whole; without finish() nothing stays behind. The
// header is padded so that the data begins at a multiple of 8; declare wide types first and every
// element is aligned.
class SafetensorsWriter {
 public:
  // Throws Error(kRuntime) when the file cannot be created.
  SafetensorsWriter(const std::filesystem::path& path,
                    const std::vector<TensorDeclaration>& tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});

  // The next bytes of the data; may cross tensor borders.
  void write(std::span<const std::byte> bytes);
  // Bytes still to be written.
  [[nodiscard]] std::int64_t remaining_bytes() const { return remaining_bytes_; }
  void finish();

 private:
  AtomicFile file_;
  std::int64_t remaining_bytes_ = 0;
};

}  // namespace moe::model
