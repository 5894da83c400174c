// The JSON files of the planner (hardware, constants, fits, anchors) from arbitrary bytes: every
// reader refuses them with an Error or reads them, nothing else. Constants that were read come out
// and in again as they were.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/planner/byte_anchors.hpp"
#include "lib/planner/collective_time.hpp"
#include "lib/planner/end_to_end.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/planner/kernel_time.hpp"
#include "lib/planner/step_constants.hpp"
#include "lib/planner/throughput_anchors.hpp"

namespace {

template <typename Read>
void read_or_refuse(Read&& read) {
  try {
    read();
  } catch (const moe::Error&) {
  }
}

void read_constants(std::string_view text) {
  using namespace moe::planner;
  const StepConstants constants = parse_step_constants(text, "fuzz");
  const TermKeys keys = make_term_keys("h100-sxm", "vllm", "fp8", "mla");
  (void)constants.resolve(keys);
  const std::string written = step_constants_json(constants);
  MOE_CHECK(step_constants_json(parse_step_constants(written, "written")) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moe::planner;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&] { read_constants(text); });
  read_or_refuse([&] { (void)parse_hardware(text, "fuzz"); });
  read_or_refuse([&] { (void)parse_kernel_table(text, "fuzz"); });
  read_or_refuse([&] { (void)parse_collective_table(text, "fuzz"); });
  read_or_refuse([&] { (void)parse_row_rules(text, "fuzz"); });
  read_or_refuse([&] { (void)parse_byte_anchors(text, "fuzz"); });
  read_or_refuse([&] { (void)parse_throughput_anchors(text, "fuzz"); });
  return 0;
}
