// A checkpoint of integer codes (GPTQ, AWQ, compressed-tensors) from arbitrary bytes: refused with
// a one-line Error, or every row of every matrix can be read. Input: config.json, a zero byte,
// model.safetensors.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/use_model.hpp"
#include "tests/support/temp_dir.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moe::test::TempDir directory;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end_of_config = input.find('\0');
  if (end_of_config == std::string_view::npos) return 0;
  moe::test::write_file(directory / "config.json", input.substr(0, end_of_config));
  moe::test::write_file(directory / "model.safetensors", input.substr(end_of_config + 1));
  try {
    const moe::model::BoundModel model = moe::model::bind_checkpoint(directory.path());
    moe::fuzz::read_everything(model);
  } catch (const moe::Error& error) {
    moe::fuzz::expect_one_line(error);
  }
  return 0;
}
