// Heads of answers from arbitrary lines: what has ended or failed stays as it is.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/client/answer_head.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moe::client::AnswerHead;
  using moe::client::BodyFraming;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  AnswerHead head;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const AnswerHead before = head;
    head.take_line(line);
    if (!before.is_ended() && !before.is_malformed()) continue;
    MOE_CHECK(head.is_ended() == before.is_ended() && head.status() == before.status());
    MOE_CHECK(head.is_malformed() == before.is_malformed());
  }
  if (!head.is_ended() || head.is_malformed()) return 0;
  MOE_CHECK(head.status() >= 101 && head.status() <= 999);
  MOE_CHECK((head.framing() == BodyFraming::kLength) <= (head.content_length() > 0));
  MOE_CHECK(head.closes() || head.framing() != BodyFraming::kUntilClose);
  return 0;
}
