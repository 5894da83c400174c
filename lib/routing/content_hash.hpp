#pragma once

// Names the content of input files in a report.

#include <memory>
#include <span>
#include <string>

#include "lib/base/file_map.hpp"

namespace moe::routing {

// "fnv1a64:...": over each file's size and up to 64 pages of 4 KiB spread evenly over it, so that a
// trace of any size takes milliseconds. Files that differ only between those pages hash alike.
[[nodiscard]] std::string content_hash(std::span<const std::shared_ptr<const FileMap>> files);

}  // namespace moe::routing
