#include "lib/json/events.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"

namespace moe::json {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// The fast parser knows that a text is wrong, the slow one says where.
[[noreturn]] void fail(std::string_view text, const std::string& where, const char* reason) {
  (void)parse(text, where, {.max_bytes = INT64_MAX, .max_depth = static_cast<int>(kMaxEventDepth)});
  throw Error(ErrorCode::kInput, fmt::format("{}: not valid JSON: {}", where, reason));
}

void walk(const element& value, EventSink& sink) {
  switch (value.type()) {
    case element_type::OBJECT:
      sink.begin_object();
      for (const auto& [name, member] : simdjson::dom::object(value)) {
        sink.key(name);
        walk(member, sink);
      }
      sink.end_object();
      break;
    case element_type::ARRAY:
      sink.begin_array();
      for (const element item : simdjson::dom::array(value)) walk(item, sink);
      sink.end_array();
      break;
    case element_type::STRING:
      sink.string(std::string_view(value));
      break;
    case element_type::UINT64:
      sink.unsigned_number(std::uint64_t(value));
      break;
    case element_type::INT64:
      if (const auto number = std::int64_t(value); number >= 0) {
        sink.unsigned_number(static_cast<std::uint64_t>(number));
      } else {
        sink.other(fmt::format("the negative number {}", number));
      }
      break;
    case element_type::DOUBLE:
      sink.other(fmt::format("the number {}", double(value)));
      break;
    case element_type::BOOL:
      sink.other("a boolean");
      break;
    case element_type::NULL_VALUE:
      sink.other("null");
      break;
  }
}

}  // namespace

void read_events(std::string_view text, const std::string& where, EventSink& sink) {
  if (text.empty()) throw Error(ErrorCode::kInput, fmt::format("{}: the file is empty", where));
  simdjson::dom::parser parser;
  simdjson::error_code error = parser.allocate(text.size(), kMaxEventDepth);
  element root;
  if (error == simdjson::SUCCESS) {
    // The parser reads a little past the end, so it works on a copy of its own.
    error = parser.parse(simdjson::padded_string(text)).get(root);
  }
  if (error != simdjson::SUCCESS) fail(text, where, simdjson::error_message(error));
  walk(root, sink);
}

}  // namespace moe::json
