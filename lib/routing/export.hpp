#pragma once

// Writes an input in another form. Each function reads the whole input once or twice, in blocks.

#include <filesystem>
#include <map>
#include <string>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

// The toolkit's own trace. Every row needs the same number of experts: unused slots that all rows
// share are cut off; where k varies, Error(kInput) says so. Needs token rows. `extra` goes into the
// file's metadata.
void export_trace(RoutingInput& input, const std::filesystem::path& file,
                  const std::map<std::string, std::string>& extra);

// One line a token and layer, after a meta line. Needs token rows.
void export_json_lines(RoutingInput& input, const std::filesystem::path& file);

// Counts over the whole input: SGLang's {"logical_count": [layers][experts]} with zero rows for the
// layers below the last that have none; CSV layer,expert,count; int64 .npy [steps, layers, experts]
// as recorded (one step for token rows).
void export_sglang_json(RoutingInput& input, const std::filesystem::path& file);
void export_counts_csv(RoutingInput& input, const std::filesystem::path& file);
void export_counts_npy(RoutingInput& input, const std::filesystem::path& file);

}  // namespace moe::routing
