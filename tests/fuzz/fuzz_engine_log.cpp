// An engine's start-up log from arbitrary bytes: refused with an Error of one line, or values that
// can be compared with a prediction.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/planner/engine_log.hpp"
#include "lib/planner/log_compare.hpp"

namespace {

constexpr std::string_view kConfig = R"({"model_type": "mixtral", "vocab_size": 512,
  "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
  "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 512,
  "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::planner;
  static const moe::model::Architecture architecture =
      moe::model::parse_architecture(kConfig, "config.json");
  try {
    const EngineLog log =
        parse_engine_log(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    const LogComparison comparison = compare_log(log, architecture, {});
    for (const LogTerm& term : comparison.terms) {
      MOE_CHECK(!term.predicted || std::isfinite(*term.predicted));
      MOE_CHECK(!term.logged || std::isfinite(*term.logged));
    }
  } catch (const moe::Error& error) {
    MOE_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
