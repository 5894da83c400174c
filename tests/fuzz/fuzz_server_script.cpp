// A script from arbitrary JSON: refused with an Error or read; what was read can be laid out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/scripted_server/script.hpp"
#include "lib/scripted_server/timeline.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moe::scripted_server::GenerationRequest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::scripted_server::Script script =
        moe::scripted_server::parse_script(moe::json::parse(text, "fuzz"), "fuzz");
    for (std::size_t i = 0; i < std::min<std::size_t>(script.replies.size(), 4); ++i) {
      for (const bool is_stream : {true, false}) {
        GenerationRequest request;
        request.stream = is_stream;
        request.is_chat = i % 2 == 0;
        request.max_tokens = 20;
        request.include_usage = is_stream;
        const auto timeline =
            moe::scripted_server::make_timeline(script, script.replies[i], request, true, false);
        if (!timeline.pieces.empty() && timeline.pieces.back().end != timeline.bytes.size()) {
          std::abort();
        }
      }
    }
  } catch (const moe::Error&) {
  }
  return 0;
}
