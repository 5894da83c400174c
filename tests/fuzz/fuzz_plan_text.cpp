// A placement plan (SGLang JSON, TensorRT-LLM YAML, CSV) from arbitrary text: refused with an
// Error, or read into a plan that every writer can write.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/balance/plan_text.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::int32_t num_gpus : {0, 2}) {
    try {
      const moe::balance::Plan plan =
          moe::balance::read_plan(text, "input", {.num_gpus = num_gpus});
      const std::string csv = moe::balance::write_plan(plan, moe::balance::PlanFormat::kCsv);
      const moe::balance::Plan again = moe::balance::read_plan(csv, "csv");
      MOE_CHECK(again.placement.slot_expert == plan.placement.slot_expert);
    } catch (const moe::Error&) {
    }
  }
  return 0;
}
