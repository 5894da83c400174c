// A GGUF file from arbitrary bytes, as a model and as a tokenizer: refused with a one-line Error,
// or every row of every matrix can be read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/model/gguf_binder.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/gguf_tokenizer.hpp"
#include "tests/fuzz/use_model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::shared_ptr<const moe::model::GgufFile> file;
  try {
    file = std::make_shared<const moe::model::GgufFile>(std::as_bytes(std::span(data, size)),
                                                        "model.gguf");
  } catch (const moe::Error& error) {
    moe::fuzz::expect_one_line(error);
    return 0;
  }
  try {
    moe::fuzz::read_everything(moe::model::bind_gguf(file, {}));
  } catch (const moe::Error& error) {
    moe::fuzz::expect_one_line(error);
  }
  try {
    if (const auto tokenizer = moe::model::load_gguf_tokenizer(*file)) {
      const std::vector<std::int32_t> ids = tokenizer->encode("a b 12", true);
      MOE_CHECK(moe::first_invalid_utf8(tokenizer->decode(ids, false)) ==
                tokenizer->decode(ids, false).size());
    }
  } catch (const moe::Error& error) {
    moe::fuzz::expect_one_line(error);
  }
  return 0;
}
