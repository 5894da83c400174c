#pragma once

// Checks a document against the part of JSON Schema 2020-12 that our schemas use: type, properties,
// required, additionalProperties, propertyNames, items, enum, const, pattern, minimum, maximum,
// exclusiveMinimum, minItems, maxItems, minLength, minProperties, allOf, anyOf, oneOf, not, and
// $ref to "#/$defs/NAME". Annotations ($schema, $id, title, description, $comment, x-...) are
// passed over; any other keyword is an error of the schema, so a check is never silently weaker
// than it reads.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moe::json {

using Json = nlohmann::ordered_json;

struct SchemaError {
  std::string pointer;  // of the offending value, "" for the document
  std::string message;
};

// Every violation in document order, at most max_errors; empty when the document is valid. Throws
// Error(kInput) when the schema itself is wrong. Patterns are ECMAScript, unanchored, and are
// matched against at most 4,096 bytes; a longer text is a violation.
[[nodiscard]] std::vector<SchemaError> check_schema(const Json& document, const Json& schema,
                                                    int max_errors = 20);

// One line a violation: "/metrics/ttft_s: missing \"unit\"".
[[nodiscard]] std::string describe(const std::vector<SchemaError>& errors);

}  // namespace moe::json
