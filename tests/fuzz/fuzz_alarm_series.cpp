// Series and labels of alarms from arbitrary text: refused with an Error, or read into series that
// the rules can be replayed over.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/balance/series_text.hpp"
#include "lib/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::balance::Series series = moe::balance::read_series(text, "input");
    std::vector<moe::balance::AlarmSample> samples;
    for (std::size_t i = 0; i < series.time_s.size(); ++i) {
      samples.push_back({series.time_s[i], series.values.front()[i]});
    }
    (void)moe::balance::replay_alarm({.metric = "x", .threshold = 1.0, .for_s = 2.0}, samples);
  } catch (const moe::Error&) {
  }
  try {
    (void)moe::balance::read_labels(text, "input");
  } catch (const moe::Error&) {
  }
  return 0;
}
