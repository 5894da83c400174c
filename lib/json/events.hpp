#pragma once

// JSON texts of many megabytes, read event by event and never held as a tree of objects: headers of
// weight files, shard indexes. Ten times as fast as parse() and as strict about the grammar; what
// the values mean, and names that come twice, are the sink's business.

#include <cstdint>
#include <string>
#include <string_view>

namespace moe::json {

// Texts are valid during the call only. A sink refuses what it does not expect by throwing.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void begin_object() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void string(std::string_view value) = 0;
  virtual void unsigned_number(std::uint64_t value) = 0;
  // Anything else, in words: "null", "a boolean", "the number -3".
  virtual void other(std::string_view what) = 0;
};

inline constexpr std::size_t kMaxEventDepth = 64;

// Throws Error(kInput), "WHERE: not valid JSON at byte N: ...", before the first event when the
// text is not JSON in UTF-8, is nested deeper than kMaxEventDepth, or has an integer beyond 64
// bits.
void read_events(std::string_view text, const std::string& where, EventSink& sink);

}  // namespace moe::json
