// A config.json from arbitrary bytes: refused with an Error, or a config whose tensors can be
// listed and counted without overflow.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::model;
  try {
    const ModelConfig config =
        parse_config(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    MOE_CHECK(static_cast<std::int32_t>(config.layers.size()) == config.num_hidden_layers);
    MOE_CHECK(config.moe.top_k <= config.moe.num_experts);
    MOE_CHECK(config.attention.rope.dim % 2 == 0);
    MOE_CHECK(!describe_router(config.moe).empty());
    // Listing is linear in the experts of the model; large ones would only make the fuzzer slow.
    if (std::int64_t{config.num_hidden_layers} * (config.moe.num_experts + 1) > 4096) return 0;
    const ParameterCounts counts = count_parameters(config);
    MOE_CHECK(counts.total > 0 && counts.active_with_embeddings > 0);
    MOE_CHECK(counts.active_with_embeddings <= counts.total);
    MOE_CHECK(count_bytes(config, Dtype::kBf16).total > 0);
  } catch (const moe::Error& error) {
    MOE_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
