// Any text as a metrics page: read without complaint; what was read gives figures that are finite.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/client/server_metrics.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view half = text.substr(0, size / 2);
  const auto before = moe::client::read_snapshot(moe::client::parse_metrics_page(half), 0.0);
  const auto after = moe::client::read_snapshot(moe::client::parse_metrics_page(text), 1.0);
  for (const auto& value : {after.running, after.waiting, after.kv_use_ratio,
                            after.prompt_tokens_total, after.generated_tokens_total}) {
    if (value && !std::isfinite(*value)) std::abort();
  }
  const auto delta = moe::client::delta_of(before, after);
  if (delta.ttft_s) {
    (void)delta.ttft_s->mean();
    (void)delta.ttft_s->quantile_bucket(0.99);
  }
  moe::client::IdentityTexts texts;
  texts.models = texts.version = texts.server_info = texts.props = texts.metrics =
      std::string(text);
  (void)moe::client::read_identity(texts);
  return 0;
}
