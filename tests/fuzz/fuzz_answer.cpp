// A server's answer from arbitrary bytes: read whole and in two pieces, both must say the same. The
// first byte is the status class, the second where the pieces are cut.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/client/answer_reader.hpp"
#include "lib/client/sse_reader.hpp"

namespace {

moe::client::RequestRecord read(std::string_view first, std::string_view second, int status) {
  moe::client::EventReader events;
  moe::client::AnswerReader reader(true);
  reader.set_status(status);
  moe::client::RequestRecord record;
  record.sent_s = 0.0;
  reader.feed(first, 1.0, events);
  reader.feed(second, 1.0, events);
  reader.finish({moe::client::Failure::kNone, "", 2.0}, events, nullptr, record);
  return record;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const int status = data[0] % 4 == 0 ? 400 : 200;
  const std::string_view body(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::size_t cut = body.size() * data[1] / 255;
  const moe::client::RequestRecord whole = read(body, {}, status);
  const moe::client::RequestRecord pieces = read(body.substr(0, cut), body.substr(cut), status);
  MOE_CHECK(whole.failure == pieces.failure);
  MOE_CHECK(whole.output_tokens == pieces.output_tokens);
  MOE_CHECK(whole.text == pieces.text);
  MOE_CHECK(whole.error == pieces.error);
  return 0;
}
