#pragma once

// One function per family of input files; open_input chooses. Each throws Error(kInput) naming the
// file and what is wrong. What all set is InputInfo's format, layers, experts and capabilities;
// open_input adds name, files and hash.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/file_map.hpp"
#include "lib/routing/array_file.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

using SharedMap = std::shared_ptr<const FileMap>;

// What is kept beside the first file for the readers: a set's name, the folder's other files.
struct ReaderRequest {
  std::vector<SharedMap> maps;  // at least one
  std::string set_name;         // after '#'; empty: the only one
  OpenOptions options;

  [[nodiscard]] std::string where() const { return maps.front()->path().string(); }
};

[[nodiscard]] RoutingInput open_moekit_trace(const ReaderRequest& request);
[[nodiscard]] RoutingInput open_torch_dump(const ReaderRequest& request);
[[nodiscard]] RoutingInput open_tensorrt(const ReaderRequest& request);
// Arrays of any container: ids, counts or scores.
[[nodiscard]] RoutingInput open_arrays(const ReaderRequest& request, const ArrayFile& file);
[[nodiscard]] RoutingInput open_json(const ReaderRequest& request);
[[nodiscard]] RoutingInput open_json_lines(const ReaderRequest& request);
[[nodiscard]] RoutingInput open_esft(const ReaderRequest& request);
[[nodiscard]] RoutingInput open_csv(const ReaderRequest& request);

// Layer numbers first, first + 1, ...
[[nodiscard]] std::vector<std::int32_t> number_layers(std::int64_t count, std::int32_t first);
// Throws Error(kInput) unless 1 <= layers, 1 <= experts <= 65536 and layers * experts is small
// enough to count in.
void check_shape(const std::string& where, std::int64_t num_layers, std::int64_t num_experts);

}  // namespace moe::routing
