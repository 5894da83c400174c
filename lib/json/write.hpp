#pragma once

// Writes JSON: keys in the order they were set, doubles so that they read back to the same value,
// never NaN or infinity (nlohmann writes those as null without a word).

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moe::json {

using Json = nlohmann::ordered_json;

struct WriteOptions {
  int indent = 2;  // spaces a level; -1 puts everything on one line
};

// Throws Error(kRuntime) when a number of the document is not finite, see dump.
void require_finite(const Json& document, const std::string& what);

// The text, without a newline at the end. Bytes that are not UTF-8 (a path can hold any) become
// U+FFFD. Throws Error(kRuntime) when a number is not finite: "report: /metrics/ttft_s/value is
// nan, and JSON has no such number". `what` names the document.
[[nodiscard]] std::string dump(const Json& document, const std::string& what,
                               const WriteOptions& options = {});

// The same into a file that is either whole or not there, with a newline at the end.
void write_file(const std::filesystem::path& path, const Json& document,
                const WriteOptions& options = {});

// Appends one step to a JSON pointer (RFC 6901), escaping ~ and /.
[[nodiscard]] std::string pointer_to(const std::string& parent, const std::string& key);

}  // namespace moe::json
