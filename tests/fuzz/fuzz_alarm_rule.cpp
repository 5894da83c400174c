// An alarm rule from arbitrary text: refused with an Error, or read into a rule whose description
// reads back to the same rule.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/balance/alarms.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::balance::AlarmRule rule = moe::balance::parse_alarm_rule(text);
    const moe::balance::AlarmRule again =
        moe::balance::parse_alarm_rule(moe::balance::describe(rule));
    MOE_CHECK(again.threshold == rule.threshold && again.comparison == rule.comparison);
  } catch (const moe::Error&) {
  }
  return 0;
}
