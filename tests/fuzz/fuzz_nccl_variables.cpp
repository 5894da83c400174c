// Variables and the data about them from arbitrary bytes: refused with an Error or checked, nothing
// else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/topology/nccl_variables.hpp"

namespace {

const moe::topology::NcclVariables& shipped() {
  static const moe::topology::NcclVariables known = [] {
    const std::string path = std::string(MOE_SOURCE_DIR) + "/scenarios/nccl/variables.json";
    return moe::topology::nccl_variables_from_json(moe::json::parse_file(path), path);
  }();
  return known;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto environment = moe::topology::read_variable_lines(text, "fuzz");
    (void)moe::topology::check_nccl_variables(environment, shipped(), 22809);
    (void)moe::topology::nccl_variables_from_json(moe::json::parse(text, "fuzz"), "fuzz");
  } catch (const moe::Error&) {
  }
  return 0;
}
