// Arbitrary bytes as JSON: refused with an Error, or a document that writes and reads back equal.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/json/write.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool allow_infinity : {false, true}) {
    const moe::json::ReadLimits limits{.allow_infinity_literal = allow_infinity};
    moe::json::Json document;
    try {
      document = moe::json::parse(text, "fuzz", limits);
    } catch (const moe::Error&) {
      continue;
    }
    // Both outside the try block: whatever was read must be writable and readable.
    const std::string written = moe::json::dump(document, "fuzz");
    MOE_CHECK(moe::json::parse(written, "again") == document);
  }
  return 0;
}
