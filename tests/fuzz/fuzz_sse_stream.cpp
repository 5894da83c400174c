// Server-sent events from arbitrary bytes: the same events for the whole and byte by byte.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/client/sse_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> whole;
  std::vector<std::string> bytewise;
  moe::client::SseReader one;
  one.feed(text, [&](const moe::client::SseEvent& event) { whole.emplace_back(event.data); });
  moe::client::SseReader other;
  const auto sink = [&](const moe::client::SseEvent& event) { bytewise.emplace_back(event.data); };
  for (std::size_t i = 0; i < text.size(); ++i) other.feed(text.substr(i, 1), sink);
  MOE_CHECK(whole == bytewise);
  MOE_CHECK(one == other);
  one.finish([&](const moe::client::SseEvent& event) { whole.emplace_back(event.data); });
  other.finish(sink);
  MOE_CHECK(whole == bytewise);
  return 0;
}
