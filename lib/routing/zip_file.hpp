#pragma once

// The members of a zip archive that stores them without compression, as torch.save and numpy.savez
// write it. Zip64 is read. Names are labels here, never paths.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace moe::routing {

struct ZipMember {
  std::string name;
  std::span<const std::byte> bytes;  // inside the archive
};

// Throws Error(kInput): compressed or encrypted members, sizes that do not fit the file.
[[nodiscard]] std::vector<ZipMember> read_zip(std::span<const std::byte> file,
                                              const std::string& where);

}  // namespace moe::routing
